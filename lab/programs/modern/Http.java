// A server on the JDK's HttpServer. In: PORT LOG MODE; in LOG what took long, CLOCK_MONOTONIC ns. What is wrong, by MODE:
// `pool`, two threads serve all requests, and twice in a thousand both are taken for 20 ms by requests that wait for something else: the
// others wait for a thread; in LOG these two. `monitor`, a thread that refreshes a table waits for 5 ms in the monitor that each request
// enters, every 50 ms; in LOG when it had it. `clean`, nothing. Before it says that it is ready it serves requests of its own: a server that
// runs for a while has compiled what it calls often.
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;

public class Http {
    private static final byte[] PAGE = "ok\n".getBytes();
    private static final Object table = new Object();
    private static final AtomicLong requests = new AtomicLong();
    private static FileOutputStream truth;
    private static String mode;

    private static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException never) {
            throw new IllegalStateException(never);
        }
    }

    private static void log(long begin, long end) {
        try {
            truth.write((begin + " " + end + "\n").getBytes());
        } catch (IOException full) {
            throw new IllegalStateException(full);
        }
    }

    private static void refresh() {
        while (true) {
            sleep(50);
            synchronized (table) {
                long begin = System.nanoTime();
                sleep(5);
                log(begin, System.nanoTime());
            }
        }
    }

    private static void handle(HttpExchange exchange) throws IOException {
        if (mode.equals("pool") && requests.getAndIncrement() % 1000 < 2) {
            long begin = System.nanoTime();
            sleep(20);
            log(begin, System.nanoTime());
        } else if (mode.equals("monitor")) {
            synchronized (table) {
                requests.getAndIncrement();
            }
        }
        exchange.sendResponseHeaders(200, PAGE.length);
        exchange.getResponseBody().write(PAGE);
        exchange.close();
    }

    // The same code as later: what it did not meet would be compiled again.
    private static void warmUp(int port) throws IOException {
        byte[] request = "GET / HTTP/1.1\r\nHost: here\r\n\r\n".getBytes();
        byte[] answer = new byte[4096];
        long end = System.nanoTime() + 8_000_000_000L;
        try (Socket socket = new Socket("127.0.0.1", port)) {
            socket.setTcpNoDelay(true);
            InputStream in = socket.getInputStream();
            for (int i = 0; i < 40_000 && System.nanoTime() < end; i++) {
                socket.getOutputStream().write(request);
                // The page ends the answer.
                for (int n = 0; n < 3 || answer[n - 1] != PAGE[2] || answer[n - 2] != PAGE[1]; ) {
                    n += in.read(answer, n, answer.length - n);
                }
            }
        }
    }

    public static void main(String[] args) throws IOException {
        mode = args[2];
        truth = new FileOutputStream(args[1], true);
        HttpServer server = HttpServer.create(new InetSocketAddress(Integer.parseInt(args[0])), 64);
        Executor threads = mode.equals("pool") ? Executors.newFixedThreadPool(2) : Executors.newCachedThreadPool();
        server.setExecutor(threads);
        server.createContext("/", Http::handle);
        server.start();
        warmUp(Integer.parseInt(args[0]));
        if (mode.equals("monitor")) new Thread(Http::refresh, "refresher").start();
        System.out.println("ready");
    }
}

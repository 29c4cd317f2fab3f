// A server in Java with a small heap that allocates in every request, so that its collector runs again and again; a thread a
// connection. 128 bytes in, the same 128 bytes out. In: PORT LOG MODE; the log stays empty: -Xlog:gc says when it collected.
import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayDeque;

public class Heap {
    private static final ThreadLocal<ArrayDeque<int[]>> kept = ThreadLocal.withInitial(ArrayDeque::new);

    private static void handle() {
        ArrayDeque<int[]> mine = kept.get();
        for (int i = 0; i < 40; i++) {
            mine.add(new int[64]);
            if (mine.size() > 6000) mine.remove();
        }
    }

    private static void serve(Socket socket) {
        try (socket) {
            socket.setTcpNoDelay(true);
            DataInputStream in = new DataInputStream(socket.getInputStream());
            OutputStream out = socket.getOutputStream();
            byte[] bytes = new byte[128];
            while (true) {
                in.readFully(bytes);
                handle();
                out.write(bytes);
            }
        } catch (IOException over) {
            // The client is gone.
        }
    }

    public static void main(String[] args) throws IOException {
        ServerSocket listener = new ServerSocket(Integer.parseInt(args[0]), 64);
        System.out.println("ready");
        while (true) {
            Socket socket = listener.accept();
            new Thread(() -> serve(socket)).start();
        }
    }
}

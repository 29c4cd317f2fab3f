//! The function table against the running kernel: stacks that /proc shows of threads that sleep in known ways.

use std::io::Read;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use tailsight_diagnose::categories::functions::FunctionTable;

/// The kernel's own word: threads of this test sleep in known ways, and the stacks that /proc shows of them land where they
/// should. Only root may read these; without that right, and on kernels without /proc/PID/stack, there is nothing to check.
#[test]
fn stacks_of_this_kernel() {
    fn start(tids: &Sender<(String, &'static str)>, expected: &'static str, sleep: impl FnOnce() + Send + 'static) {
        let tids = tids.clone();
        std::thread::spawn(move || {
            let task = std::fs::read_link("/proc/thread-self").unwrap();
            tids.send((format!("/proc/{}/stack", task.display()), expected)).unwrap();
            drop(tids);
            sleep();
        });
    }
    if std::fs::read_to_string("/proc/self/stack").is_err() {
        eprintln!("not checked: /proc/self/stack cannot be read");
        return;
    }
    let (tids, stacks) = channel();
    let (never, wait) = channel::<()>();
    let (mut near, far) = UnixStream::pair().unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    start(&tids, "lock-wait/futex", move || assert!(wait.recv().is_err()));
    start(&tids, "app-processing/own-timer", || std::thread::sleep(Duration::from_secs(20)));
    start(&tids, "app-processing/peer-wait", move || drop(near.read(&mut [0])));
    start(&tids, "app-processing/peer-wait", move || drop(reader.read(&mut [0])));
    start(&tids, "app-processing/peer-wait", move || drop(stream.read(&mut [0])));
    start(&tids, "app-processing/peer-wait", move || drop(udp.recv(&mut [0])));
    start(&tids, "connection-setup/accept", move || drop(listener.accept()));
    drop(tids);
    let table = FunctionTable::default();
    for (path, expected) in stacks {
        let mut said = String::new();
        // A thread may sleep on its way to the call that it is to sleep in.
        for _ in 0..2_000 {
            let text = std::fs::read_to_string(&path).unwrap();
            let frames: Vec<&str> = text.lines().filter_map(|l| l.split_once("] ").map(|(_, f)| f)).collect();
            said = table.category_of_wait(&frames).map_or(text.clone(), |v| format!("{}/{}", v.category, v.sub));
            if said == expected {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(said, expected, "{path}");
    }
    drop((never, far, writer, peer));
}

//! Live recordings of a server on tokio. This program is the server, too: started again, it runs the test that serves and never ends.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::functions_live::recorded;
use crate::support::Live;

/// What the server does slowly, as the test that serves is told.
const LOCK: &str = "lock";
const ACTOR: &str = "actor";
const JOBS: &str = "jobs";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

struct Shop {
    table: Mutex<u64>,
    index: mpsc::Sender<oneshot::Sender<u64>>,
    slow: String,
}

/// Has the table for 20 ms, again and again.
async fn refresh(shop: Arc<Shop>) {
    loop {
        tokio::time::sleep(Duration::from_millis(180)).await;
        let mut table = shop.table.lock().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        *table += 1;
    }
}

async fn read_table(shop: &Shop) -> u64 {
    *shop.table.lock().await
}

/// Computes for 10 ms in one of 60 requests.
async fn answer_from_index(mut asked: mpsc::Receiver<oneshot::Sender<u64>>) {
    let mut n = 0u64;
    while let Some(reply) = asked.recv().await {
        n += 1;
        if n.is_multiple_of(60) {
            rebuild_index();
        }
        let _ = reply.send(n);
    }
}

#[inline(never)]
fn rebuild_index() {
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_millis(10) {
        std::hint::black_box(began);
    }
}

/// Has both threads that may block for 20 ms, again and again.
async fn export() {
    loop {
        tokio::time::sleep(Duration::from_millis(180)).await;
        let files = [(); 2].map(|()| tokio::task::spawn_blocking(write_file));
        for file in files {
            let _ = file.await;
        }
    }
}

#[inline(never)]
fn write_file() {
    std::thread::sleep(Duration::from_millis(20));
    // With something to do after it, it is not left for the sleep.
    std::hint::black_box(Duration::ZERO);
}

async fn render() -> u64 {
    tokio::task::spawn_blocking(|| std::hint::black_box(1)).await.unwrap_or_default()
}

async fn look_up(shop: &Shop) -> u64 {
    let (reply, answer) = oneshot::channel();
    let _ = shop.index.send(reply).await;
    answer.await.unwrap_or_default()
}

async fn serve(mut client: TcpStream, shop: Arc<Shop>) {
    let mut request = [0; 4096];
    while client.read(&mut request).await.is_ok_and(|n| n > 0) {
        // By pointers: else a compiler may put one function into the other, and a build for tests has no debug information that tells.
        let handler: Pin<Box<dyn Future<Output = u64> + Send + '_>> = match &*shop.slow {
            LOCK => Box::pin(read_table(&shop)),
            JOBS => Box::pin(render()),
            _ => Box::pin(look_up(&shop)),
        };
        std::hint::black_box(handler.await);
        if client.write_all(OK).await.is_err() {
            return;
        }
    }
}

/// The server: its last arguments are what is slow, and its port.
#[test]
#[ignore = "the server that tests of this file start"]
fn serves_on_tokio() {
    let words: Vec<String> = std::env::args().collect();
    let [.., slow, port] = &words[..] else { panic!("{words:?}") };
    let (slow, port) = (slow.clone(), port.parse::<u16>().unwrap());
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).max_blocking_threads(2).enable_all().build().unwrap();
    runtime.block_on(async move {
        let (index, asked) = mpsc::channel(100);
        let shop = Arc::new(Shop { table: Mutex::new(0), index, slow });
        if shop.slow == JOBS {
            tokio::spawn(export());
        }
        tokio::spawn(refresh(Arc::clone(&shop)));
        tokio::spawn(answer_from_index(asked));
        let door = TcpListener::bind(("10.77.0.1", port)).await.unwrap();
        loop {
            let (client, _) = door.accept().await.unwrap();
            client.set_nodelay(true).unwrap();
            tokio::spawn(serve(client, Arc::clone(&shop)));
        }
    });
}

/// What the slowest messages of a server waited for: the first cause, and the text without line breaks; none where the machine did not let it be
/// judged.
fn first_cause(test: &str, slow: &str) -> Option<(serde_json::Value, String)> {
    let live = Live::new(test)?;
    let test_program = std::env::current_exe().unwrap();
    let server = [test_program.to_str().unwrap(), "--ignored", "--exact", "tokio_live::serves_on_tokio", slow];
    let (meta, d, text) = recorded(&live, test, &server, 300.0, &[])?;
    let breakpoints = &meta["routines"]["breakpoints"];
    let count = |name: &str| breakpoints[name].as_u64().unwrap_or_else(|| panic!("{:#}", meta["routines"]));
    // A run, a wake-up and a place where it waits for each request.
    assert!(count("places") > 4 && count("hits") > 1_000, "{breakpoints:#}");
    if cfg!(target_arch = "x86_64") {
        assert_eq!(count("stepped_places"), 0, "{breakpoints:#}");
    }
    Some((d["causes"][0].clone(), text.split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// A task that waited for a lock was `waits for what the kernel does not show (epoll_wait)`; who had the lock nobody knew.
#[test]
fn a_task_s_wait_for_a_lock_of_tokio_is_a_lock_and_says_what_its_holder_did() {
    let test = "a_task_s_wait_for_a_lock_of_tokio_is_a_lock_and_says_what_its_holder_did";
    let Some((first, text)) = first_cause(test, LOCK) else { return };
    assert!(text.contains("the task that ended the wait meanwhile "), "{text}");
    let name = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    assert_eq!(first["category"], "lock-wait", "{first:#}");
    assert!(name(&first["name"]).starts_with("tokio waiting for a lock"), "{first:#}");
    assert!(name(&first["functions"][0]["name"]).contains("tokio_live::read_table"), "{first:#}");
    let meanwhile = &first["meanwhile"][0];
    assert_eq!(meanwhile["doing"], "sleeps", "{first:#}");
    assert!(name(&meanwhile["function"]).contains("tokio_live::refresh"), "{first:#}");
    assert!(meanwhile["share"].as_f64().unwrap() > 0.8, "{first:#}");
}

/// Behind an actor requests wait for what it computes, and no lock and no thread tells.
#[test]
fn a_wait_for_an_actor_says_what_the_actor_ran() {
    let test = "a_wait_for_an_actor_says_what_the_actor_ran";
    let Some((first, text)) = first_cause(test, ACTOR) else { return };
    assert!(text.contains("the task that ended the wait meanwhile "), "{text}");
    assert_eq!(first["name"], "tokio waiting on a channel", "{first:#}");
    let name = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    assert!(name(&first["functions"][0]["name"]).contains("tokio_live::look_up"), "{first:#}");
    let meanwhile = &first["meanwhile"][0];
    assert_eq!(meanwhile["doing"], "runs", "{first:#}");
    assert!(name(&meanwhile["function"]).contains("tokio_live::answer_from_index"), "{first:#}");
}

/// Behind jobs that had all threads that may block, requests were `waits for what the kernel does not show`, and a job's sleep "the server itself".
#[test]
fn a_wait_for_a_thread_that_may_block_says_what_it_did() {
    let test = "a_wait_for_a_thread_that_may_block_says_what_it_did";
    let Some((first, text)) = first_cause(test, JOBS) else { return };
    assert_eq!(first["category"], "pool-wait", "{first:#}");
    assert_eq!(first["subject"]["name"], "threads for jobs that block", "{first:#}");
    let function = first["functions"][0]["name"].as_str().unwrap_or_default();
    assert!(function.contains("tokio_live::write_file"), "{first:#}");
    assert!(text.contains("where the one before it waited"), "{text}");
}

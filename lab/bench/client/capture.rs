//! What arrives at a server's interface, without touching server or client. In: an interface of a namespace of ours, a
//! port. Out: TCP segments with data, with the kernel's time of their arrival (CLOCK_REALTIME, ns).
//!
//! An AF_PACKET socket with a ring in memory (TPACKET_V3) that is large enough for the whole run: nothing reads meanwhile,
//! so no CPU time is used. A frame that finds the ring full is counted. The cost of the copy (about a microsecond) falls on
//! the task that delivers the frame, and is the same for all clients; prices are measured without a capture.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

use anyhow::Context;
use tailsight_lab::servers::TextProtocol;
use tailsight_testbed::netns::Namespace;

use super::line::Segment;

/// Bytes of a block, and blocks: room for half a million requests.
const BLOCK: usize = 1 << 20;
const BLOCKS: usize = 128;
/// A block that is not full is handed over after this time, ms.
const RETIRE_MS: u32 = 200;

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    socket: OwnedFd,
    ring: NonNull<libc::c_void>,
    protocol: TextProtocol,
}

// SAFETY: the mapping belongs to the process, not to the thread that made it, and only `self` refers to it.
unsafe impl Send for Capture {}

/// The captured frames.
#[derive(Debug, Clone, Default)]
pub struct CapturedFrames {
    /// In the order of arrival.
    pub segments: Vec<Segment>,
    /// Frames that the ring had no room for.
    pub lost: u32,
}

impl Capture {
    /// Begins to capture what arrives at `interface` for the TCP port.
    pub fn start(ns: &Namespace, interface: &str, port: u16, protocol: TextProtocol) -> anyhow::Result<Self> {
        ns.run(|| Self::open(interface, port, protocol))?
            .with_context(|| format!("cannot capture on {interface} (AF_PACKET, {} MiB)", (BLOCK * BLOCKS) >> 20))
    }

    fn open(interface: &str, port: u16, protocol: TextProtocol) -> io::Result<Self> {
        // Protocol 0: nothing is captured before the filter is there.
        // SAFETY: a plain system call.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: the descriptor is new and ours.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut program = filter(port);
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
        // The stamp is that of the device's queue for every run, also where the client asks for no stamps itself.
        set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as libc::c_int))?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
        let frame = 2048;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: frame,
            tp_frame_nr: (BLOCK * BLOCKS) as u32 / frame,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        // SAFETY: a new mapping of the ring that the socket has just been given, as long as the ring.
        let ring = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BLOCK * BLOCKS,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        let ring = NonNull::new(ring).filter(|ring| ring.as_ptr() != libc::MAP_FAILED);
        let ring = ring.ok_or_else(io::Error::last_os_error)?;
        let capture = Self { socket, ring, protocol };
        let index = nix::net::if_::if_nametoindex(interface)?;
        // SAFETY: all zeros is a valid address of this family.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_IP as u16).to_be();
        address.sll_ifindex = index.cast_signed();
        // SAFETY: the address is one of this family, with its true length.
        check(unsafe {
            libc::bind(
                capture.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        })?;
        Ok(capture)
    }

    /// Waits for the last frames and returns all frames.
    pub fn finish(self) -> anyhow::Result<CapturedFrames> {
        std::thread::sleep(Duration::from_millis(u64::from(2 * RETIRE_MS)));
        // SAFETY: all zeros is a valid value of plain counters.
        let mut stats: libc::tpacket_stats_v3 = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::tpacket_stats_v3>() as libc::socklen_t;
        // SAFETY: both pointers are valid for writing, and the length is that of the value.
        check(unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut length,
            )
        })
        .context("cannot read the capture's counters")?;
        let mut captured = CapturedFrames { segments: Vec::new(), lost: stats.tp_drops };
        for block in 0..BLOCKS {
            // SAFETY: the ring is BLOCKS blocks long and mapped until `self` is dropped. A block is read only after the
            // kernel has handed it over, and it does not write to it again before it is given back, which we never do.
            let block = unsafe {
                let at = self.ring.as_ptr().cast::<u8>().add(block * BLOCK);
                let status = at.add(BLOCK_STATUS).cast::<u32>().read_volatile();
                std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
                if status & libc::TP_STATUS_USER == 0 {
                    break;
                }
                std::slice::from_raw_parts(at, BLOCK)
            };
            frames(block, |at_ns, frame| captured.segments.extend(segment(at_ns, frame, self.protocol)))
                .context("the capture's ring is not as it should be")?;
        }
        Ok(captured)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and nothing refers to it any more.
        unsafe { libc::munmap(self.ring.as_ptr(), BLOCK * BLOCKS) };
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn set<T>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the pointer is valid for reading as many bytes as the length says.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(result).map(drop)
}

/// IPv4 TCP segments to the port that carry data, whole.
fn filter(port: u16) -> [libc::sock_filter; 18] {
    use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JGT, BPF_JMP, BPF_JSET, BPF_K, BPF_LD};
    use libc::{BPF_ADD, BPF_LDX, BPF_MISC, BPF_MSH, BPF_RET, BPF_RSH, BPF_TAX, BPF_X};
    let op = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let jump = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    [
        op(BPF_LD | BPF_H | BPF_ABS, 12),
        jump(BPF_JMP | BPF_JEQ | BPF_K, libc::ETH_P_IP as u32, 0, 14),
        op(BPF_LD | BPF_B | BPF_ABS, 23),
        jump(BPF_JMP | BPF_JEQ | BPF_K, libc::IPPROTO_TCP as u32, 0, 12),
        op(BPF_LD | BPF_H | BPF_ABS, 20),
        jump(BPF_JMP | BPF_JSET | BPF_K, 0x1fff, 10, 0),
        op(BPF_LDX | BPF_B | BPF_MSH, 14),
        op(BPF_LD | BPF_H | BPF_IND, 16),
        jump(BPF_JMP | BPF_JEQ | BPF_K, u32::from(port), 0, 7),
        // The TCP header's length and the IP header's against the whole.
        op(BPF_LD | BPF_B | BPF_IND, 26),
        op(BPF_ALU | BPF_AND | BPF_K, 0xf0),
        op(BPF_ALU | BPF_RSH | BPF_K, 2),
        op(BPF_ALU | BPF_ADD | BPF_X, 0),
        op(BPF_MISC | BPF_TAX, 0),
        op(BPF_LD | BPF_H | BPF_ABS, 16),
        jump(BPF_JMP | BPF_JGT | BPF_X, 0, 1, 0),
        op(BPF_RET | BPF_K, 0),
        op(BPF_RET | BPF_K, 0x40000),
    ]
}

const BLOCK_STATUS: usize =
    std::mem::offset_of!(libc::tpacket_block_desc, hdr) + std::mem::offset_of!(libc::tpacket_hdr_v1, block_status);

/// Calls `each` with time and bytes of every frame of a block.
fn frames(block: &[u8], mut each: impl FnMut(u64, &[u8])) -> anyhow::Result<()> {
    let word = |at: usize| -> anyhow::Result<usize> {
        let bytes = block.get(at..at + 4).context("an offset beyond the block")?;
        Ok(u32::from_ne_bytes(bytes.try_into()?) as usize)
    };
    let count = word(BLOCK_STATUS + 4)?;
    let mut at = word(BLOCK_STATUS + 8)?;
    for _ in 0..count {
        let field = |offset: usize| word(at + offset);
        let (seconds, ns) = (
            field(std::mem::offset_of!(libc::tpacket3_hdr, tp_sec))?,
            field(std::mem::offset_of!(libc::tpacket3_hdr, tp_nsec))?,
        );
        let length = field(std::mem::offset_of!(libc::tpacket3_hdr, tp_snaplen))?;
        let mac = field(std::mem::offset_of!(libc::tpacket3_hdr, tp_mac))? & 0xffff;
        let frame = block.get(at + mac..at + mac + length).context("a frame beyond the block")?;
        each(seconds as u64 * 1_000_000_000 + ns as u64, frame);
        let next = field(std::mem::offset_of!(libc::tpacket3_hdr, tp_next_offset))?;
        if next == 0 {
            break;
        }
        at += next;
    }
    Ok(())
}

/// The segment in an Ethernet frame that the filter let through.
fn segment(at_ns: u64, frame: &[u8], protocol: TextProtocol) -> Option<Segment> {
    let ip = frame.get(14..)?;
    let header = usize::from(*ip.first()? & 0xf) * 4;
    let whole = usize::from(u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?]));
    let tcp = ip.get(header..)?;
    let data_at = usize::from(*tcp.get(12)? >> 4) * 4;
    let port = u16::from_be_bytes([*tcp.first()?, *tcp.get(1)?]);
    let seq = u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?);
    // A short frame is padded: its own length does not count.
    let data = tcp.get(data_at..whole.checked_sub(header)?)?;
    (!data.is_empty()).then(|| Segment { at_ns, port, seq, len: data.len() as u32, starts: starts(data, protocol) })
}

/// Offsets at which read requests begin. Stores are a client's preparation, not its load.
fn starts(data: &[u8], protocol: TextProtocol) -> Vec<u32> {
    let word: &[u8] = match protocol {
        TextProtocol::Memcached => b"get ",
        TextProtocol::Http1 => b"GET /",
        TextProtocol::Resp => b"*2\r\n$3\r\nGET\r\n",
    };
    // They begin a segment or a line.
    let begins = |at: &usize| *at == 0 || data[*at - 1] == b'\n';
    data.windows(word.len())
        .enumerate()
        .filter(|(at, bytes)| *bytes == word && begins(at))
        .map(|(at, _)| at as u32)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(data: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 14];
        let mut ip = vec![0x45, 0];
        ip.extend((40 + data.len() as u16).to_be_bytes());
        ip.extend([0; 16]);
        frame.extend(ip);
        let mut tcp = 40_001_u16.to_be_bytes().to_vec();
        tcp.extend(7000_u16.to_be_bytes());
        tcp.extend(77_u32.to_be_bytes());
        tcp.extend([0, 0, 0, 0, 0x50, 0x18, 0, 0, 0, 0, 0, 0]);
        frame.extend(tcp);
        frame.extend(data);
        frame
    }

    #[test]
    fn a_segment_is_its_data_without_padding() {
        let mut bytes = frame(b"get key_1\r\nset k 0 0 4\r\nget \r\nget key_2\r\n");
        bytes.extend([0; 6]);
        let parsed = segment(5, &bytes, TextProtocol::Memcached).unwrap();
        assert_eq!((parsed.port, parsed.seq, parsed.len), (40_001, 77, 41));
        // The value of the store looks like a request, as a value may; loads that are compared store nothing.
        assert_eq!(parsed.starts, [0, 24, 30]);
        let page = segment(5, &frame(b"GET / HTTP/1.1\r\nHost: a\r\nX: GET /\r\n\r\n"), TextProtocol::Http1).unwrap();
        assert_eq!(page.starts, [0]);
        assert_eq!(segment(5, &frame(b""), TextProtocol::Http1), None);
        for cut in 0..bytes.len() {
            // Never a panic.
            let _ = segment(5, &bytes[..cut], TextProtocol::Memcached);
        }
    }

    #[test]
    fn a_block_that_lies_is_an_error() {
        let mut block = vec![0; 4096];
        assert!(frames(&block, |_, _| panic!("no frame")).is_ok());
        block[BLOCK_STATUS + 4] = 1;
        block[BLOCK_STATUS + 8..BLOCK_STATUS + 12].copy_from_slice(&4090_u32.to_ne_bytes());
        assert!(frames(&block, |_, _| panic!("no frame")).is_err());
    }

    /// On the loopback of this host's namespace, which needs the right to capture; without it there is nothing to test.
    #[test]
    fn requests_on_a_real_interface_are_seen_with_their_times() {
        use std::io::Write;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        if let Some(reason) = tailsight_testing::lacks_networks() {
            return tailsight_testing::skip(format!("{reason}, and to capture"));
        }
        let capture = Capture::open("lo", port, TextProtocol::Memcached).unwrap();
        let mut client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.set_nodelay(true).unwrap();
        for _ in 0..50 {
            client.write_all(b"get a\r\n").unwrap();
        }
        client.write_all(b"get a\r\nget b\r\n").unwrap();
        let captured = capture.finish().unwrap();
        let requests = super::super::line::arrivals(&captured.segments);
        assert_eq!((captured.lost, requests.all.len(), requests.missing), (0, 52, 0));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        assert!(
            requests.all.iter().all(|a| a.at_ns < now && a.at_ns > now - 60_000_000_000),
            "the kernel's wall clock"
        );
        assert!(requests.all.is_sorted_by_key(|a| a.at_ns));
    }
}

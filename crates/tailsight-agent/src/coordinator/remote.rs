//! The coordinator's end of one agent. In: calls of the coordinator. Out: records on the coordinator's clock.
//!
//! While a load runs, a task renews the lease and fetches records twice a second: when the agent dies, the records until
//! then are here. After the start, an agent's failure never fails a call: the agent is marked as gone, with the reason.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tailsight_load::{Interval, Progress, Sample, Send as Sent, now_ns};
use tailsight_units::chain;
use tokio::io::AsyncBufReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};

use super::clocks::{Offset, Round};
use super::{Credentials, Role};
use crate::proto;
use crate::proto::agent_client::AgentClient;
use crate::wire::{MAX_MESSAGE, PROTOCOL, Records, Summary};
use crate::{AgentAddress, AgentError, host, tls};

type Client = AgentClient<InterceptedService<Channel, Bearer>>;

/// Puts the token on every call.
#[derive(Clone)]
pub(crate) struct Bearer(MetadataValue<Ascii>);

impl tonic::service::Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

/// Records that have come and were not passed on yet.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    pub(crate) samples: Vec<Sample>,
    pub(crate) sends: Vec<Sent>,
    /// One list a thread.
    pub(crate) rows: Vec<Vec<Interval>>,
}

/// One agent.
pub(crate) struct Remote {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) hello: proto::HelloReply,
    client: Client,
    gone: Mutex<Option<String>>,
    fetched: Mutex<Fetched>,
    /// One fetch at a time, so that records stay in order.
    fetching: tokio::sync::Mutex<()>,
    offset: Mutex<Offset>,
    last: Mutex<Progress>,
}

/// A round trip that takes longer is no measure of the clocks' offset.
const CALL: Duration = Duration::from_secs(5);
/// For connecting thousands of connections and storing a million keys.
const START: Duration = Duration::from_secs(180);
const ROUNDS: usize = 40;
/// How long to wait for the agent's first bytes after the handshake.
const FIRST_WORDS: Duration = Duration::from_secs(1);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while one of these locks is held leaves the value valid: each change is complete.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn said(status: &Status) -> String {
    let source = std::error::Error::source(status).map(chain);
    match source {
        // An agent's status has no source; a transport's status has the reason in its source, and itself only says
        // "transport error".
        Some(source) => explained(source),
        None if status.message().is_empty() => status.code().to_string(),
        None => status.message().to_owned(),
    }
}

/// The meaning of an agent's TLS alert here, and what to do.
fn explained(words: String) -> String {
    let alert = |names: &[&str]| words.contains("fatal alert") && names.iter().any(|name| words.contains(name));
    if alert(&["CertificateRequired"]) {
        words
            + ": the agent requires a certificate signed by its --client-ca, and none was given; give one with \
             --agent-certificate \
               and --agent-key"
    } else if alert(&["UnknownCA", "BadCertificate", "CertificateUnknown", "CertificateExpired", "DecryptError"]) {
        words
            + ": the agent does not accept the certificate of --agent-certificate; is it signed by the agent's \
             --client-ca, and valid now?"
    } else {
        words
    }
}

impl Remote {
    /// Connects, greets, compares the clocks.
    pub(crate) async fn connect(
        address: &AgentAddress,
        role: Role,
        credentials: &Credentials,
        who: &str,
    ) -> Result<Arc<Self>, AgentError> {
        let name = address.authority();
        let fail = |reason: String| AgentError::Connect { agent: name.clone(), reason };
        let tls = tls::client(address.fingerprint, credentials.ca.as_deref(), credentials.identity.as_ref())?;
        let server_name = ServerName::try_from(address.host.clone()).map_err(|e| fail(e.to_string()))?;
        let connector = Connector { authority: name.clone(), server_name, tls: TlsConnector::from(Arc::new(tls)) };
        // The connector does the TLS; the URI only gives the HTTP/2 authority.
        let endpoint = Endpoint::from_static("http://agent").connect_timeout(CALL).tcp_nodelay(true);
        let channel = endpoint.connect_with_connector(connector).await.map_err(|e| {
            let words = chain(&e);
            // An alert comes from an agent that runs and is the expected one.
            if words.contains("fatal alert") {
                return fail(explained(words));
            }
            fail(format!("{words}; is the agent running, and are its address and fingerprint right?"))
        })?;
        let bearer = format!("Bearer {}", credentials.token.reveal()).parse();
        let bearer = Bearer(bearer.map_err(|_| fail("the token cannot be sent in a header".into()))?);
        let mut client = AgentClient::with_interceptor(channel, bearer).max_decoding_message_size(MAX_MESSAGE);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let mut greeting = Request::new(proto::HelloRequest { protocol: PROTOCOL, version, name: who.to_owned() });
        greeting.set_timeout(CALL);
        let hello = client.hello(greeting).await.map_err(|e| fail(said(&e)))?.into_inner();
        let remote = Arc::new(Self {
            name,
            role,
            hello,
            client,
            gone: Mutex::default(),
            fetched: Mutex::default(),
            fetching: tokio::sync::Mutex::new(()),
            offset: Mutex::default(),
            last: Mutex::default(),
        });
        let offset = remote.compare_clocks().await?;
        *lock(&remote.offset) = offset;
        Ok(remote)
    }

    fn request<T>(&self, message: T, timeout: Duration) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(timeout);
        request
    }

    fn failed(&self, call: &'static str) -> impl Fn(Status) -> AgentError {
        move |status| AgentError::Call { agent: self.name.clone(), call, reason: said(&status) }
    }

    /// Why it is gone.
    pub(crate) fn gone(&self) -> Option<String> {
        lock(&self.gone).clone()
    }

    pub(crate) fn mark_gone(&self, reason: String) {
        lock(&self.gone).get_or_insert(reason);
    }

    /// The agent's clock minus this host's, as last measured.
    pub(crate) fn offset(&self) -> Offset {
        *lock(&self.offset)
    }

    pub(crate) fn set_offset(&self, offset: Offset) {
        *lock(&self.offset) = offset;
    }

    /// Whether it reports this very host and clock.
    fn is_here(&self) -> bool {
        let (boot, namespace) = (host::boot_id(), host::time_namespace());
        !boot.is_empty() && self.hello.boot_id == boot && self.hello.time_namespace == namespace
    }

    /// Measures the offset again.
    pub(crate) async fn compare_clocks(&self) -> Result<Offset, AgentError> {
        let mut client = self.client.clone();
        let mut rounds = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let request = self.request(proto::ClockRequest { session: self.hello.session }, CALL);
            let before_ns = now_ns();
            let reply = client.clock(request).await.map_err(self.failed("comparing clocks"))?;
            let after_ns = now_ns();
            rounds.push(Round { before_ns, agent_ns: reply.into_inner().monotonic_ns, after_ns });
        }
        let none = || AgentError::Clock { agent: self.name.clone(), reason: "no reading came".into() };
        Offset::measure(&rounds, self.is_here()).ok_or_else(none)
    }

    pub(crate) async fn prepare(&self, load: proto::LoadRequest) -> Result<(), AgentError> {
        self.client.clone().prepare(self.request(load, START)).await.map_err(self.failed("preparing the load"))?;
        Ok(())
    }

    /// Prepares its load; returns the address of its target.
    pub(crate) async fn start(&self, load: proto::LoadRequest) -> Result<String, AgentError> {
        let reply = self.client.clone().start_load(self.request(load, START)).await;
        let reply = reply.map_err(self.failed("start_load"))?.into_inner();
        *lock(&self.fetched) = Fetched::default();
        *lock(&self.last) = Progress::default();
        Ok(reply.address)
    }

    /// Starts the load at an instant of this host's clock, ns; returns when it does begin, on this host's clock.
    pub(crate) async fn go(&self, start_ns: u64) -> Result<u64, AgentError> {
        let offset = self.offset().offset_ns;
        let message = proto::GoRequest { session: self.hello.session, start_ns: start_ns.wrapping_add_signed(offset) };
        let reply = self.client.clone().go(self.request(message, CALL)).await.map_err(self.failed("go"))?;
        Ok(reply.into_inner().start_ns.wrapping_add_signed(-offset))
    }

    pub(crate) async fn measure(&self, samples: u64, sampling_rate: f64) -> Result<(), AgentError> {
        let message = proto::StartMeasureRequest { session: self.hello.session, samples, sampling_rate };
        self.client.clone().start_measure(self.request(message, CALL)).await.map_err(self.failed("start_measure"))?;
        Ok(())
    }

    /// Asks for its state; the last known one when it is gone.
    pub(crate) async fn progress(&self) -> Progress {
        if self.gone().is_none() {
            let message = proto::GetThroughputRequest { session: self.hello.session };
            match self.client.clone().get_throughput(self.request(message, CALL)).await {
                Ok(reply) => {
                    let reply = reply.into_inner();
                    *lock(&self.last) = Progress {
                        elapsed_ns: reply.elapsed_ns,
                        sent: reply.sent,
                        answered: reply.answered,
                        failed: reply.failed,
                        blocked: reply.blocked,
                        samples: reply.samples,
                        ended: reply.ended,
                    };
                }
                Err(status) => self.mark_gone(format!("get_throughput: {}", said(&status))),
            }
        }
        *lock(&self.last)
    }

    /// Fetches the records since the last call.
    pub(crate) async fn fetch(&self) {
        if self.gone().is_some() {
            return;
        }
        let _alone = self.fetching.lock().await;
        if let Err(status) = self.try_fetch().await {
            self.mark_gone(format!("get_latency: {}", said(&status)));
        }
    }

    async fn try_fetch(&self) -> Result<(), Status> {
        let message = proto::GetLatencyRequest { session: self.hello.session, sends: Vec::new() };
        let mut stream = self.client.clone().get_latency(self.request(message, START)).await?.into_inner();
        while let Some(message) = tokio::time::timeout(CALL, stream.message())
            .await
            .map_err(|_| Status::deadline_exceeded("no records for 5 s"))??
        {
            let mut records = Records::default();
            if !records.take(message) {
                return Err(Status::data_loss("its records have columns of unequal length"));
            }
            records.shift(-self.offset().offset_ns);
            let mut fetched = lock(&self.fetched);
            // A throughput agent records next to nothing, so that its sends are kept; its samples are not used.
            if self.role != Role::Throughput {
                fetched.samples.append(&mut records.samples);
            }
            fetched.sends.append(&mut records.sends);
            for (thread, row) in records.intervals {
                let thread = thread.min(1023) as usize;
                if fetched.rows.len() <= thread {
                    fetched.rows.resize(thread + 1, Vec::new());
                }
                fetched.rows[thread].push(row);
            }
        }
        Ok(())
    }

    /// Passes on the records that have come.
    pub(crate) fn taken<T>(&self, take: impl FnOnce(&mut Fetched) -> T) -> T {
        take(&mut lock(&self.fetched))
    }

    /// Renews the lease once.
    pub(crate) async fn keep_alive(&self) {
        let message = proto::KeepAliveRequest { session: self.hello.session };
        if let Err(status) = self.client.clone().keep_alive(self.request(message, CALL)).await {
            self.mark_gone(format!("keep-alive: {}", said(&status)));
        }
    }

    /// Ends its load; `within` covers the drain.
    pub(crate) async fn stop(&self, within: Duration) -> Result<Summary, AgentError> {
        let message = proto::StopRequest { session: self.hello.session };
        let reply =
            self.client.clone().stop(self.request(message, within + CALL)).await.map_err(self.failed("stop"))?;
        serde_json::from_str(&reply.into_inner().summary).map_err(|e| AgentError::Call {
            agent: self.name.clone(),
            call: "stop",
            reason: format!("its summary cannot be read ({e}); use the same version on both sides"),
        })
    }

    /// Ends the session. A failure is ignored; the lease then ends it.
    pub(crate) async fn exit(&self) {
        let message = proto::ExitRequest { session: self.hello.session };
        let _ = self.client.clone().exit(self.request(message, Duration::from_secs(1))).await;
    }
}

/// Connects and shakes hands.
#[derive(Clone)]
struct Connector {
    authority: String,
    server_name: ServerName<'static>,
    tls: TlsConnector,
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let socket = TcpStream::connect(&connector.authority).await?;
            socket.set_nodelay(true)?;
            let handshake = connector.tls.connect(connector.server_name, socket);
            let mut stream =
                tokio::time::timeout(CALL, handshake).await.map_err(|_| std::io::ErrorKind::TimedOut)??;
            // In TLS 1.3 the agent checks the coordinator's certificate after this side of the handshake is over: its first
            // bytes are HTTP/2's or an alert, which would otherwise be lost in the failure of the first call.
            if let Ok(first) = tokio::time::timeout(FIRST_WORDS, stream.fill_buf()).await
                && first?.is_empty()
            {
                return Err(std::io::Error::other("the agent closed the connection after the handshake"));
            }
            Ok(TokioIo::new(stream))
        })
    }
}

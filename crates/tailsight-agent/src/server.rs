//! An agent that listens. In: where, with which token and certificate, and what it allows. Out: a server until it is stopped.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::StreamExt;
use tonic::{Request, Status};

use crate::gate::{GREETING, Gate};
use crate::proto::agent_server::AgentServer;
use crate::service::{Service, caller, peer};
use crate::session::{Log, Sessions};
use crate::tls::{self, Identity};
use crate::wire::MAX_MESSAGE;
use crate::{AgentError, Fingerprint, Policy, Token};

/// The options of an agent.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where it listens; port 0: any free one.
    pub listen: SocketAddr,
    /// The token that callers must have.
    pub token: Token,
    /// Its certificate; `None`: a new one, signed by itself.
    pub identity: Option<Identity>,
    /// The authority that must have signed the callers' certificates; `None`: callers need none.
    pub client_ca: Option<PathBuf>,
    /// What it allows.
    pub policy: Policy,
}

/// An agent that is bound and not yet served.
pub struct Agent {
    listener: TcpListener,
    address: SocketAddr,
    tls: ServerConfig,
    fingerprint: Fingerprint,
    config: Config,
}

/// How long a TLS handshake may take; the token must have come within [`GREETING`].
const HANDSHAKE: Duration = Duration::from_secs(3);

impl Agent {
    /// Binds the socket and loads or makes the certificate.
    ///
    /// # Errors
    /// A port that is taken, a certificate or key that cannot be used.
    pub fn bind(config: Config) -> Result<Self, AgentError> {
        let (tls, fingerprint) = tls::server(config.identity.as_ref(), config.client_ca.as_deref())?;
        let what = format!("listen on {}", config.listen);
        let listener = TcpListener::bind(config.listen).map_err(AgentError::io(what.clone()))?;
        listener.set_nonblocking(true).map_err(AgentError::io(what.clone()))?;
        let address = listener.local_addr().map_err(AgentError::io(what))?;
        Ok(Self { listener, address, tls, fingerprint, config })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The fingerprint that coordinators pin.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Serves until `stop` becomes true; then its load ends at once.
    ///
    /// # Errors
    /// [`AgentError::Io`] when the control plane cannot be started or fails.
    pub fn serve(self, stop: &AtomicBool, log: Log) -> Result<(), AgentError> {
        // One thread is enough for control, and leaves the cores to the load.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(AgentError::io("start the control plane"))?;
        let sessions = Sessions::new(log.clone());
        let service = Service { sessions: sessions.clone(), policy: Arc::new(self.config.policy) };
        let gate = Arc::new(Gate::new(log.clone()));
        let (token, callers) = (self.config.token, gate.clone());
        let check = move |request: Request<()>| {
            let offered = request.metadata().get("authorization").map_or(&b""[..], |value| value.as_bytes());
            if token.matches(offered.strip_prefix(b"Bearer ").unwrap_or_default()) {
                if let Some(caller) = caller(&request) {
                    callers.known(caller);
                }
                return Ok(request);
            }
            callers.refused(&format!("call from {} refused: wrong token, or none", peer(&request)));
            Err(Status::unauthenticated("wrong token; give the one that the agent printed or was started with"))
        };
        // The token is checked before a message is read.
        let server = AgentServer::new(service).max_decoding_message_size(MAX_MESSAGE);
        let server = tonic::service::interceptor::InterceptedService::new(server, check);
        let result = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener).map_err(AgentError::io("listen"))?;
            let (sender, receiver) = mpsc::channel(1);
            tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(self.tls)), sender, gate, log));
            let incoming = Receiver(receiver).map(Ok::<_, std::io::Error>);
            let serving = tonic::transport::Server::builder()
                .max_concurrent_streams(64)
                .http2_keepalive_interval(Some(Duration::from_secs(5)))
                .http2_keepalive_timeout(Some(Duration::from_secs(5)))
                .add_service(server)
                .serve_with_incoming(incoming);
            tokio::select! {
                result = serving => result.map_err(|e| AgentError::io("serve")(std::io::Error::other(e))),
                () = stopped(stop) => Ok(()),
            }
        });
        sessions.close("the agent ends");
        runtime.shutdown_timeout(Duration::from_millis(500));
        result
    }
}

async fn stopped(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A channel as a stream.
struct Receiver(mpsc::Receiver<Guarded>);

impl tokio_stream::Stream for Receiver {
    type Item = Guarded;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Guarded>> {
        self.0.poll_recv(context)
    }
}

type Guarded = TlsStream<TcpStream>;

/// Accepts and shakes hands, each caller in a task of its own, so that a slow or hostile one delays no other.
async fn accept(
    listener: tokio::net::TcpListener,
    tls: TlsAcceptor,
    sender: mpsc::Sender<Guarded>,
    gate: Arc<Gate>,
    log: Log,
) {
    loop {
        let accepted = match listener.accept().await {
            Ok((socket, peer)) => gate.enter(peer, &socket).map(|number| (socket, peer, number)),
            Err(error) => Err(error),
        };
        let (socket, peer, number) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                log(&format!("cannot accept a connection: {error}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let _ = socket.set_nodelay(true);
        let (tls, sender, gate) = (tls.clone(), sender.clone(), gate.clone());
        tokio::spawn(async move {
            let until = tokio::time::Instant::now() + GREETING;
            match tokio::time::timeout(HANDSHAKE, tls.accept(socket)).await {
                Ok(Ok(stream)) => {
                    let _ = sender.send(stream).await;
                    tokio::time::sleep_until(until).await;
                    if gate.expire(number) {
                        gate.refused(&format!(
                            "connection from {peer} ended: no call with the token within {GREETING:?}"
                        ));
                    }
                    return;
                }
                Ok(Err(error)) => gate.refused(&format!("connection from {peer} refused: TLS: {error}")),
                Err(_) => {
                    gate.refused(&format!("connection from {peer} refused: no TLS handshake within {HANDSHAKE:?}"));
                }
            }
            gate.leave(number);
        });
    }
}

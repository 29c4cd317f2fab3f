//! The calls of an agent. In: gRPC requests from callers with the token. Out: the session's answers.

use std::net::SocketAddr;
use std::sync::Arc;

use ring::rand::{SecureRandom, SystemRandom};
use tailsight_load::{Cancel, Driver, LoadError, Plan, Rate, now_ns};
use tailsight_units::chain;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status};

use crate::policy::{Admitted, Policy};
use crate::proto;
use crate::session::{LEASE, Ready, Sessions};
use crate::wire::{PROTOCOL, chunks};
use crate::{AgentError, host};

/// The service behind the token check.
pub(crate) struct Service {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) policy: Arc<Policy>,
}

/// How far ahead a load may be told to begin, ns.
const MOST_AHEAD_NS: u64 = 10_000_000_000;

type Answer<T> = Result<Response<T>, Status>;

/// What tonic knows of a TLS caller; it exports the type only with a TLS configuration of its own.
type CallerInfo = <TlsStream<TcpStream> as Connected>::ConnectInfo;

/// The address of a call.
pub(crate) fn caller<T>(request: &Request<T>) -> Option<SocketAddr> {
    request.extensions().get::<CallerInfo>().and_then(|info| info.get_ref().remote_addr())
}

/// Who called, for the log.
pub(crate) fn peer<T>(request: &Request<T>) -> String {
    caller(request).map_or_else(|| "an unknown address".to_owned(), |address| address.to_string())
}

fn denied(reason: String) -> Status {
    Status::failed_precondition(reason)
}

fn refused(error: &AgentError) -> Status {
    match error {
        AgentError::Refused(_) => Status::permission_denied(chain(error)),
        _ => Status::invalid_argument(chain(error)),
    }
}

/// Text of a coordinator, made safe for a line of the log.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

/// Runs blocking work on a thread where it may block.
async fn blocking<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    tokio::task::spawn_blocking(act)
        .await
        .map_err(|e| Status::internal(format!("the agent failed: {e}; please report it")))
}

impl Service {
    /// Admits a load and prepares it, or logs why not.
    async fn start(&self, request: proto::LoadRequest, only_prepare: bool) -> Result<String, Status> {
        let (id, sessions, policy) = (request.session, self.sessions.clone(), self.policy.clone());
        let abandon = sessions.begin_start(id).map_err(denied)?;
        blocking(move || {
            let cancel = Cancel { abandon, ..Cancel::default() };
            let begun = begin(&policy, &request, only_prepare, &cancel);
            let (ready, result) = match begun {
                Ok((address, None)) => (None, Ok(address)),
                Ok((address, Some(ready))) => {
                    let plan = ready.plan();
                    let role = request.role().as_str_name().trim_start_matches("ROLE_").to_lowercase();
                    sessions.log(&format!(
                        "load ready ({role}): {} at {address}, {}, {} requests/s {}, {} connections, {} threads, seed \
                         {}",
                        plan.target, plan.protocol, plan.rate, plan.arrivals, plan.connections, plan.threads, plan.seed
                    ));
                    (Some(ready), Ok(address))
                }
                Err(error) => {
                    sessions.log(&format!("load refused: {}", plain(&chain(&error))));
                    (None, Err(refused(&error)))
                }
            };
            sessions.end_start(id, ready).map_err(denied)?;
            result
        })
        .await?
    }
}

/// Prepares an admitted load. If only preparation was asked for, everything but the keys is released again.
fn begin(
    policy: &Policy,
    request: &proto::LoadRequest,
    only_prepare: bool,
    cancel: &Cancel<'_>,
) -> Result<(String, Option<Ready>), AgentError> {
    let Admitted { mut plan, address, files } = policy.admit(request)?;
    if only_prepare {
        store_keys(&mut plan, cancel)?;
        return Ok((address, None));
    }
    // Recording begins with a measurement window, not with the load.
    plan.sampling = 0.0;
    Ok((address, Some(Ready::new(Driver::prepare_within(plan, cancel)?, files, policy.rate))))
}

/// Connects once a thread, stores the keys, and closes: a load whose first request is due after its end.
fn store_keys(plan: &mut Plan, cancel: &Cancel<'_>) -> Result<(), LoadError> {
    plan.connections = plan.threads;
    plan.arrivals = tailsight_load::Arrivals::FIXED;
    plan.rate = Rate::Steps(vec![(1_000_000_000, 0.0), (1_000_000_000, 1.0)]);
    plan.duration_ns = Some(1_000_000);
    (plan.max_samples, plan.max_sends) = (1, 1);
    // It lasts a millisecond and nothing is due in it.
    let _ = Driver::prepare_within(plan.clone(), cancel)?.go(0).wait();
    Ok(())
}

#[tonic::async_trait]
impl proto::agent_server::Agent for Service {
    async fn hello(&self, request: Request<proto::HelloRequest>) -> Answer<proto::HelloReply> {
        let peer = peer(&request);
        let hello = request.into_inner();
        if hello.protocol != PROTOCOL {
            return Err(denied(format!(
                "the coordinator speaks protocol {}, the agent {PROTOCOL}; use the same version on both sides",
                hello.protocol
            )));
        }
        let mut id = [0; 8];
        SystemRandom::new().fill(&mut id).map_err(|_| Status::internal("no random bytes"))?;
        let session = u64::from_le_bytes(id);
        let (name, version) = (plain(&hello.name), plain(&hello.version));
        self.sessions
            .open(session, format!("{name} at {peer}, version {version}"))
            .map_err(Status::resource_exhausted)?;
        let policy = &self.policy;
        Ok(Response::new(proto::HelloReply {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            session,
            hostname: host::hostname(),
            boot_id: host::boot_id(),
            time_namespace: host::time_namespace(),
            kernel: host::kernel(),
            cores: host::cores(),
            kernel_stamps: host::kernel_stamps(),
            busy_poll: host::busy_poll(),
            limits: Some(proto::Limits {
                rate: policy.rate,
                duration_ms: policy.duration.as_millis() as u64,
                connections: policy.connections,
                samples: policy.samples as u64,
                targets: policy.allow.texts(),
            }),
            lease_ms: LEASE.as_millis() as u32,
        }))
    }

    async fn clock(&self, request: Request<proto::ClockRequest>) -> Answer<proto::ClockReply> {
        self.sessions.keep_alive(request.into_inner().session).map_err(denied)?;
        Ok(Response::new(proto::ClockReply { monotonic_ns: now_ns(), realtime_ns: host::realtime_ns() }))
    }

    async fn prepare(&self, request: Request<proto::LoadRequest>) -> Answer<proto::PrepareReply> {
        let address = self.start(request.into_inner(), true).await?;
        Ok(Response::new(proto::PrepareReply { address }))
    }

    async fn start_load(&self, request: Request<proto::LoadRequest>) -> Answer<proto::StartLoadReply> {
        let address = self.start(request.into_inner(), false).await?;
        Ok(Response::new(proto::StartLoadReply { address }))
    }

    async fn go(&self, request: Request<proto::GoRequest>) -> Answer<proto::GoReply> {
        let request = request.into_inner();
        // A distant instant would hold a load back until it is no longer expected.
        if request.start_ns > now_ns() + MOST_AHEAD_NS {
            return Err(Status::invalid_argument(
                "the start is more than 10 s ahead; are the clocks of both hosts right?",
            ));
        }
        let start_ns = self.sessions.go(request.session, request.start_ns).map_err(denied)?;
        self.sessions.log("load started");
        Ok(Response::new(proto::GoReply { start_ns }))
    }

    async fn start_measure(&self, request: Request<proto::StartMeasureRequest>) -> Answer<proto::StartMeasureReply> {
        let request = request.into_inner();
        let rate = request.sampling_rate;
        if !(0.0..=1.0).contains(&rate) {
            return Err(Status::invalid_argument(format!("the sampling rate must be 0 to 1, got {rate}")));
        }
        let window = self.sessions.measure(request.session, request.samples, rate).map_err(denied)?;
        Ok(Response::new(proto::StartMeasureReply { window: u32::from(window), start_ns: now_ns() }))
    }

    async fn get_throughput(&self, request: Request<proto::GetThroughputRequest>) -> Answer<proto::ThroughputReply> {
        let (progress, enough) = self.sessions.progress(request.into_inner().session).map_err(denied)?;
        Ok(Response::new(proto::ThroughputReply {
            elapsed_ns: progress.elapsed_ns,
            sent: progress.sent,
            answered: progress.answered,
            failed: progress.failed,
            blocked: progress.blocked,
            samples: progress.samples,
            ended: progress.ended,
            enough,
            now_ns: now_ns(),
        }))
    }

    type GetLatencyStream = tokio_stream::Iter<std::vec::IntoIter<Result<proto::Records, Status>>>;

    async fn get_latency(&self, request: Request<proto::GetLatencyRequest>) -> Answer<Self::GetLatencyStream> {
        let request = request.into_inner();
        let sessions = self.sessions.clone();
        let messages = blocking(move || {
            let mut records = sessions.records(request.session).map_err(denied)?;
            if !request.sends.is_empty() {
                let inside = |ns: u64| request.sends.iter().any(|span| (span.from_ns..span.to_ns).contains(&ns));
                records.sends.retain(|send| inside(send.intended_ns));
            }
            Ok::<_, Status>(chunks(&records).into_iter().map(Ok).collect::<Vec<_>>())
        })
        .await??;
        Ok(Response::new(tokio_stream::iter(messages)))
    }

    async fn keep_alive(&self, request: Request<proto::KeepAliveRequest>) -> Answer<proto::KeepAliveReply> {
        let loading = self.sessions.keep_alive(request.into_inner().session).map_err(denied)?;
        Ok(Response::new(proto::KeepAliveReply { loading }))
    }

    async fn stop(&self, request: Request<proto::StopRequest>) -> Answer<proto::StopReply> {
        let (sessions, id) = (self.sessions.clone(), request.into_inner().session);
        let summary = blocking(move || sessions.stop(id)).await?.map_err(denied)?;
        let summary = serde_json::to_string(&summary).map_err(|e| Status::internal(e.to_string()))?;
        Ok(Response::new(proto::StopReply { summary }))
    }

    async fn exit(&self, request: Request<proto::ExitRequest>) -> Answer<proto::ExitReply> {
        let (sessions, id) = (self.sessions.clone(), request.into_inner().session);
        blocking(move || sessions.exit(id)).await?.map_err(denied)?;
        Ok(Response::new(proto::ExitReply {}))
    }
}

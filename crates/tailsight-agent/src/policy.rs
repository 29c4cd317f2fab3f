//! What the operator of an agent allows. In: a plan that a coordinator sent. Out: the plan that may run, or the refusal.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tailsight_load::{ArrivalProcess, Arrivals, Endpoint, Plan, Protocol, Trust};
use tempfile::NamedTempFile;

use crate::allow::Allow;
use crate::{AgentError, proto};

/// The most that a coordinator may ask of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// The targets.
    pub allow: Allow,
    /// Requests/s, at any time.
    pub rate: f64,
    /// How long a load may last.
    pub duration: Duration,
    /// Connections.
    pub connections: u32,
    /// Room for samples; each takes 56 bytes of memory with its send.
    pub samples: usize,
    /// Keys that are stored before a load. The limit of the rate does not apply to storing.
    pub keys: u64,
}

impl Default for Policy {
    /// Loopback, 100,000 requests/s, ten minutes, 4,096 connections, 4 million samples, a million keys.
    fn default() -> Self {
        Self {
            allow: Allow::default(),
            rate: 100_000.0,
            duration: Duration::from_secs(600),
            connections: 4096,
            samples: 1 << 22,
            keys: 1_000_000,
        }
    }
}

/// A plan that may run.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) plan: Plan,
    /// The address of the target; empty for a Unix socket.
    pub(crate) address: String,
    /// Files that the plan names; they live as long as the load.
    pub(crate) files: Vec<NamedTempFile>,
}

impl Policy {
    /// Checks a request. Resolves the target, once: the load goes to the address that was checked.
    pub(crate) fn admit(&self, request: &proto::LoadRequest) -> Result<Admitted, AgentError> {
        let refuse = |reason: String| Err(AgentError::Refused(reason));
        let mut plan: Plan = serde_json::from_str(&request.plan).map_err(|e| {
            AgentError::Refused(format!("the plan cannot be read ({e}); use the same version on both sides"))
        })?;
        let files = self.files(&mut plan, request)?;
        plan.validate()?;
        let peak = peak(&plan, &request.replay_gaps_ns);
        if peak > self.rate {
            return refuse(format!("{peak:.0} requests/s asked for, at most {:.0} allowed (--max-rate)", self.rate));
        }
        let longest = self.duration.as_nanos() as u64;
        match plan.duration_ns {
            Some(ns) if ns > longest => {
                let asked = Duration::from_nanos(ns);
                return refuse(format!(
                    "a load of {asked:?} asked for, at most {:?} allowed (--max-duration)",
                    self.duration
                ));
            }
            Some(_) => {}
            None => plan.duration_ns = Some(longest),
        }
        if plan.connections > self.connections {
            let (asked, most) = (plan.connections, self.connections);
            return refuse(format!("{asked} connections asked for, at most {most} allowed (--max-connections)"));
        }
        for (what, room) in [("samples", plan.max_samples), ("sends", plan.max_sends)] {
            if room > self.samples {
                return refuse(format!("room for {room} {what} asked for, at most {} allowed", self.samples));
            }
        }
        if plan.workload.keys > self.keys {
            return refuse(format!(
                "{} keys asked for, at most {} allowed (--max-keys)",
                plan.workload.keys, self.keys
            ));
        }
        let address = self.pin_target(&mut plan)?;
        Ok(Admitted { plan, address, files })
    }

    /// Writes the received files into new temporary files; a path that the coordinator chose is never opened.
    fn files(&self, plan: &mut Plan, request: &proto::LoadRequest) -> Result<Vec<NamedTempFile>, AgentError> {
        let mut files = Vec::new();
        let mut keep = |bytes: &[u8]| {
            let mut file = NamedTempFile::new().map_err(AgentError::io("create a file for the load"))?;
            file.write_all(bytes).map_err(AgentError::io("write a file for the load"))?;
            let path = file.path().to_owned();
            files.push(file);
            Ok::<_, AgentError>(path)
        };
        if let Arrivals::Replay(_) = plan.arrivals {
            if request.replay_gaps_ns.is_empty() {
                return Err(AgentError::Refused("a replay without its times".into()));
            }
            let mut text = String::new();
            let mut at = 0_u64;
            for gap in &request.replay_gaps_ns {
                at = at.saturating_add(*gap);
                let _ = writeln!(text, "{}.{:09}", at / 1_000_000_000, at % 1_000_000_000);
            }
            plan.arrivals = Arrivals::Replay(keep(text.as_bytes())?);
        }
        if let Trust::File(_) = plan.trust {
            plan.trust = Trust::File(keep(&request.trust_pem)?);
        }
        Ok(files)
    }

    /// Checks where the target is and writes the address into the plan, so that a name whose address changes between the
    /// check and the load has no effect.
    fn pin_target(&self, plan: &mut Plan) -> Result<String, AgentError> {
        let allowed = self.allow.texts().join(", ");
        let refuse = |what: String| {
            AgentError::Refused(format!(
                "{what} is not among the allowed targets ({allowed}); the agent's operator can add it with --allow"
            ))
        };
        if let Endpoint::Unix(path) = &plan.target {
            return if self.allow.permits_unix(path) {
                Ok(String::new())
            } else {
                Err(refuse(plan.target.to_string()))
            };
        }
        let addresses = plan.target.resolve()?;
        if let Some(bad) = addresses.iter().find(|address| !self.allow.permits(**address)) {
            return Err(refuse(format!("{} ({bad})", plan.target)));
        }
        let reached = |address: &&SocketAddr| {
            plan.target.is_datagram()
                || addresses.len() == 1
                || TcpStream::connect_timeout(address, Duration::from_nanos(plan.patience_ns)).is_ok()
        };
        let address = addresses.iter().find(reached).copied().unwrap_or(addresses[0]);
        let host = plan.target.host().unwrap_or_default().to_owned();
        let by_name = host.parse::<std::net::IpAddr>().is_err();
        // HTTP sends the target's name; with the address instead, a server would answer for another site.
        if by_name && matches!(plan.protocol, Protocol::Http1 | Protocol::Http2) {
            return Ok(address.to_string());
        }
        plan.target = match plan.target {
            Endpoint::Tcp(_) => Endpoint::Tcp(address.to_string()),
            Endpoint::Tls(_) => {
                plan.server_name.get_or_insert(host);
                Endpoint::Tls(address.to_string())
            }
            Endpoint::Udp(_) => Endpoint::Udp(address.to_string()),
            Endpoint::R2p2(_) => Endpoint::R2p2(address.to_string()),
            Endpoint::Unix(_) => unreachable!("Unix sockets were dealt with above"),
        };
        Ok(address.to_string())
    }
}

/// The highest rate of a plan at any time, requests/s. 0 for a closed loop, which is watched while it runs.
fn peak(plan: &Plan, replay_gaps_ns: &[u64]) -> f64 {
    match &plan.arrivals {
        closed if closed.is_closed() => 0.0,
        Arrivals::Drawn(ArrivalProcess::Mmpp { ratio, share, .. }) => {
            plan.rate.peak() * ratio / (1.0 - share + share * ratio)
        }
        Arrivals::Replay(_) => {
            let times: Vec<u64> = replay_gaps_ns
                .iter()
                .scan(0_u64, |at, gap| {
                    *at = at.saturating_add(*gap);
                    Some(*at)
                })
                .collect();
            let (mut first, mut most) = (0, 0);
            for (last, time) in times.iter().enumerate() {
                while time - times[first] >= 1_000_000_000 {
                    first += 1;
                }
                most = most.max(last - first + 1);
            }
            most as f64
        }
        _ => plan.rate.peak(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(change: impl FnOnce(&mut Plan)) -> proto::LoadRequest {
        let mut plan = Plan::new("127.0.0.1:9".parse().unwrap(), Protocol::Echo);
        change(&mut plan);
        proto::LoadRequest { plan: serde_json::to_string(&plan).unwrap(), ..Default::default() }
    }

    #[test]
    fn what_is_too_much_is_refused_with_its_limit() {
        let policy = Policy { keys: 50_000, ..Policy::default() };
        assert!(policy.admit(&request(|_| {})).is_ok());
        type Change = fn(&mut Plan);
        let cases: [(&str, Change); 10] = [
            ("--max-rate", |p| p.rate = "200k".parse().unwrap()),
            ("--max-rate", |p| p.rate = "ramp:1k..200k/10s".parse().unwrap()),
            ("--max-rate", |p| {
                p.rate = "90k".parse().unwrap();
                p.arrivals = "mmpp:8,0.1,10ms".parse().unwrap();
            }),
            ("--max-duration", |p| p.duration_ns = Some(601_000_000_000)),
            ("--max-connections", |p| p.connections = 5000),
            ("samples", |p| p.max_samples = 1 << 24),
            ("sends", |p| p.max_sends = 1 << 24),
            ("--max-keys", |p| p.workload.keys = 60_000),
            ("--allow", |p| p.target = "10.0.0.1:11211".parse().unwrap()),
            ("--allow", |p| p.target = "unix:/run/some.sock".parse().unwrap()),
        ];
        for (word, change) in cases {
            let error = policy.admit(&request(change)).unwrap_err().to_string();
            assert!(error.contains(word), "{word}: {error}");
        }
        let nonsense = proto::LoadRequest { plan: "{}".into(), ..Default::default() };
        assert!(policy.admit(&nonsense).unwrap_err().to_string().contains("same version"));
    }

    #[test]
    fn an_endless_load_gets_the_longest_end() {
        let admitted = Policy::default().admit(&request(|p| p.duration_ns = None)).unwrap();
        assert_eq!(admitted.plan.duration_ns, Some(600_000_000_000));
    }

    #[test]
    fn names_become_the_address_that_was_checked_but_for_http() {
        let at = |target: &str, protocol| {
            let request = request(|p| {
                (p.target, p.protocol) = (target.parse().unwrap(), protocol);
                p.outstanding = 1;
            });
            Policy::default().admit(&request).unwrap().plan
        };
        let plan = at("tls://localhost:9", Protocol::Resp);
        assert_eq!(plan.server_name.as_deref(), Some("localhost"));
        assert!(plan.target.resolve().unwrap()[0].ip().is_loopback());
        assert_ne!(plan.target.host(), Some("localhost"));
        assert_eq!(at("localhost:9", Protocol::Http1).target.host(), Some("localhost"));
    }

    /// A coordinator could otherwise read files of the agent's host through the text of the error.
    #[test]
    fn files_of_the_agents_host_are_not_opened() {
        let mut wants = request(|p| p.arrivals = Arrivals::Replay("/etc/passwd".into()));
        assert!(matches!(Policy::default().admit(&wants), Err(AgentError::Refused(_))));
        wants.replay_gaps_ns = vec![0, 1_500_000_000, 1];
        let admitted = Policy::default().admit(&wants).unwrap();
        let Arrivals::Replay(path) = &admitted.plan.arrivals else { panic!() };
        assert_eq!(std::fs::read_to_string(path).unwrap(), "0.000000000\n1.500000000\n1.500000001\n");
        let wants = request(|p| p.trust = Trust::File("/etc/passwd".into()));
        let admitted = Policy::default().admit(&wants).unwrap();
        assert!(matches!(&admitted.plan.trust, Trust::File(path) if path != std::path::Path::new("/etc/passwd")));
    }

    #[test]
    fn a_replays_rate_is_its_busiest_second() {
        let mut wants = request(|p| p.arrivals = Arrivals::Replay("x".into()));
        wants.replay_gaps_ns = [vec![2_000_000_000; 5], vec![1000; 500]].concat();
        let policy = Policy { rate: 400.0, ..Policy::default() };
        assert!(policy.admit(&wants).unwrap_err().to_string().contains("501 requests/s"));
        assert!(Policy { rate: 501.0, ..Policy::default() }.admit(&wants).is_ok());
    }
}

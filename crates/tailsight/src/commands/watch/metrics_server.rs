//! The metrics of `watch` over HTTP: GET /metrics and nothing else, on the address that was asked for.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::Context;
use tailsight_watch::metrics::CONTENT_TYPE;

use crate::page_server::Server;

/// Requests that are answered in a turn at most.
const MOST_A_TURN: usize = 8;

/// A server of metrics.
pub struct MetricsServer {
    server: Server,
    address: SocketAddr,
}

impl MetricsServer {
    /// Listens.
    ///
    /// # Errors
    /// If the address cannot be had.
    pub fn open(address: SocketAddr) -> anyhow::Result<MetricsServer> {
        let failed = || format!("cannot serve metrics at {address}");
        let listener = TcpListener::bind(address).with_context(failed)?;
        let address = listener.local_addr().with_context(failed)?;
        Ok(MetricsServer { server: Server::new(listener).with_context(failed)?, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers the requests that wait.
    pub fn answer(&self, text: impl Fn() -> String) {
        for _ in 0..MOST_A_TURN {
            let Ok(Some(request)) = self.server.next(Duration::ZERO) else { return };
            match request.url.as_str() {
                "/metrics" if request.reads => request.reply(200, CONTENT_TYPE, text().into_bytes()),
                "/metrics" => request.reply(405, "text/plain", b"only GET\n".to_vec()),
                _ => request.reply(404, "text/plain", b"the metrics are at /metrics\n".to_vec()),
            }
        }
    }
}

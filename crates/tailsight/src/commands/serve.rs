//! `serve`: a queue whose latency has a closed form, behind a port, so that anyone can check a load generator against it.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tailsight_testbed::queue::{self, Service, TextProtocol};
use tailsight_units::format;

use crate::cli_serve::Serve;
use crate::stop::on_interrupt;
use crate::{Exit, terminal};

/// Serves until Ctrl-C, or for the time asked for.
pub fn run(args: &Serve) -> anyhow::Result<Exit> {
    let stop = on_interrupt();
    let address = queue::start(SocketAddr::new(args.listen, args.port), args.service, args.protocol)?;
    terminal::print(&introduction(address, args.service, args.protocol))?;
    let begun = Instant::now();
    while !stop.load(Ordering::Relaxed) && args.duration.is_none_or(|duration| begun.elapsed() < duration) {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(Exit::Done)
}

/// What is served, and how it is checked.
fn introduction(address: SocketAddr, service: Service, protocol: TextProtocol) -> String {
    let scheme = match protocol {
        TextProtocol::Memcached => "memcached",
        TextProtocol::Resp => "redis",
        TextProtocol::Http1 => "http",
    };
    let mean_ns = service.mean_ns();
    let half = 0.5e9 / mean_ns;
    let law = match service {
        Service::Fixed(_) => "D",
        Service::Exponential(_) => "M",
        Service::Bimodal(_) => "bimodal:10,0.1",
        Service::Lognormal(_) => "lognormal:1",
    };
    let mean = format::duration(mean_ns.round() as u64);
    format!(
        "serving {scheme}://{address}: one queue in the order of arrival, service times {service}, at most {} requests/s\n\
         at half of that:   tailsight load {scheme}://{address} --rate {half:.0}\n\
         what it should be: tailsight ideal --model 'M/{law}/1 50%' --service {}us\n\
         It takes a core while it has connections (mean service time {mean}; below 20 us its own system calls count).\n",
        format::count((1e9 / mean_ns) as u64),
        mean_ns / 1e3,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_introduction_has_the_load_and_the_model_that_belong_to_it() {
        let words =
            introduction("127.0.0.1:7000".parse().unwrap(), "exponential:500us".parse().unwrap(), TextProtocol::Http1);
        assert!(words.contains("http://127.0.0.1:7000 --rate 1000\n"), "{words}");
        assert!(words.contains("--model 'M/M/1 50%' --service 500us"), "{words}");
        for law in ["fixed:10us", "exponential:10us", "bimodal:10us", "lognormal:10us"] {
            let words = introduction("127.0.0.1:1".parse().unwrap(), law.parse().unwrap(), TextProtocol::Memcached);
            let model = words.split('\'').nth(1).unwrap();
            assert!(model.parse::<tailsight_ideal::queue::Model>().is_ok(), "{model}");
        }
    }
}

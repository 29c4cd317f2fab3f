//! Simulated experiments for the proof of the method: a FIFO server (Lindley), open loop or with few connections, steady or
//! drifting, fed by a right or a wrong arrival process.
//!
//! In: a server, a load, a fault and a seed. Out: the batches that agents would report. Service times have a mean of 10 us;
//! times are ns.

use tailsight_stats::distributions::Lognormal;
use tailsight_stats::method::{AgentBatch, Batch, Sample, Send, Slice};
use tailsight_stats::random::{Random, mix};

/// Mean service time, ns.
pub const MEAN_SERVICE: f64 = 10_000.0;
/// Length of a load slice, ns.
const SLICE: f64 = 100e6;
/// Windows of consecutive sends kept of a batch, and their length.
const WINDOWS: usize = 4;
const WINDOW: usize = 1_500;

/// Service time distributions of the proof.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(dead_code)] // Each example and test uses some of this module.
pub enum Server {
    /// M/M/1.
    Exponential,
    /// M/D/1.
    Deterministic,
    /// 90 % short, 10 % ten times as long.
    Bimodal,
    /// σ of the logarithm is 1.
    Lognormal,
}

impl Server {
    /// All four.
    #[allow(dead_code)]
    pub const ALL: [Server; 4] = [Server::Exponential, Server::Deterministic, Server::Bimodal, Server::Lognormal];

    /// Its name in tables.
    #[allow(dead_code)]
    pub fn name(self) -> &'static str {
        match self {
            Server::Exponential => "M/M/1",
            Server::Deterministic => "M/D/1",
            Server::Bimodal => "bimodal 90/10 ×10",
            Server::Lognormal => "lognormal σ = 1",
        }
    }

    fn service(self, random: &mut Random) -> f64 {
        match self {
            Server::Exponential => -MEAN_SERVICE * random.uniform().ln(),
            Server::Deterministic => MEAN_SERVICE,
            Server::Bimodal => MEAN_SERVICE / 1.9 * if random.uniform() < 0.1 { 10.0 } else { 1.0 },
            Server::Lognormal => {
                let lognormal = Lognormal::with_mean(MEAN_SERVICE, 1.0);
                (lognormal.mu + lognormal.sigma * random.normal()).exp()
            }
        }
    }
}

/// What is wrong with an experiment. Times are in units of the first batch's duration.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(dead_code)]
pub enum Fault {
    /// Nothing.
    None,
    /// Service times grow by this fraction per unit, for ever.
    Linear(f64),
    /// Service times follow a geometric random walk with this deviation per unit.
    Walk(f64),
    /// Another program takes half of the server's core, in spells that begin and end at random: of this many units in the mean, and half of
    /// the time.
    Stolen(f64),
    /// The server stands still for so many ns, after exponential gaps of so many in the mean.
    Stopped(f64, f64),
    /// One request in a hundred takes 10 times longer at first; that share grows by this much per unit.
    Tail(f64),
    /// Service times are longer by this factor during the first tenth of a unit: a warm-up.
    Cold(f64),
    /// At most so many requests are out at once; the client's schedule is known.
    Connections(usize),
    /// The same, and the client takes the time at which a connection came free for the intended one.
    HiddenConnections(usize),
    /// Equal gaps though Poisson is specified.
    FixedArrivals,
    /// Uniform gaps.
    UniformArrivals,
    /// Lognormal gaps, σ = 1.5.
    LognormalArrivals,
    /// Poisson, but sent in the ticks of a timer of this length (ns).
    Ticks(f64),
    /// Poisson, the rate switching between ×1.5 and ×0.5 about every 1,000 requests.
    Bursty,
    /// The client is busy with each request for this long (ns), and with this share of them for an exponential of this mean more;
    /// requests that come due meanwhile leave late, in order.
    LateClient(f64, f64, f64),
    /// 5 % of the requests are not sent.
    MissedLoad,
    /// Requests go over so many connections at random, of each of which the client reads all that came, every so many ns: replies
    /// that are read together have the time of the last. What is known of each is the time between that and the read before.
    SharedReads(usize, f64, Shared),
}

/// What is done with replies that share a time.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(dead_code)]
pub enum Shared {
    /// The interval reaches to where they may have come.
    Bounded,
    /// They are left out (Lancet's way).
    LeftOut,
    /// Nothing.
    Ignored,
}

/// A simulated experiment.
pub struct World {
    random: Random,
    server: Server,
    fault: Fault,
    /// Requests per ns.
    rate: f64,
    /// ns: the first batch's duration, the unit of faults.
    unit: f64,
    now: f64,
    measuring_since: Option<f64>,
    server_free: f64,
    client_free: f64,
    /// When each connection is free again, and which is next (a ring: replies come in order).
    connections: Vec<f64>,
    next_connection: usize,
    walk: f64,
    walked_to: f64,
    fast: bool,
    /// What draws the faults of the server's, so that two experiments can have the same.
    path: Random,
    /// Until when the core is shared, or is not; when the server stops the next time.
    changes_at: f64,
}

impl World {
    /// A server that begins empty.
    pub fn new(server: Server, load: f64, fault: Fault, seed: u64) -> Self {
        let rate = load / MEAN_SERVICE;
        let connections = match fault {
            Fault::Connections(n) | Fault::HiddenConnections(n) => vec![0.0; n],
            _ => Vec::new(),
        };
        Self {
            random: Random::new(seed),
            server,
            fault,
            rate,
            unit: 50_000.0 / rate,
            now: 0.0,
            measuring_since: None,
            server_free: 0.0,
            client_free: 0.0,
            connections,
            next_connection: 0,
            walk: 0.0,
            walked_to: 0.0,
            fast: true,
            path: Random::new(mix(seed, 0x70)),
            changes_at: 0.0,
        }
    }

    /// The same server with the same faults at the same times, asked by another client.
    #[allow(dead_code)]
    pub fn on_path_of(self, seed: u64) -> Self {
        Self { path: Random::new(mix(seed, 0x70)), ..self }
    }

    fn gap(&mut self) -> f64 {
        let mean = 1.0 / self.rate;
        match self.fault {
            Fault::FixedArrivals => mean,
            Fault::UniformArrivals => 2.0 * mean * self.random.uniform(),
            Fault::LognormalArrivals => {
                let lognormal = Lognormal::with_mean(mean, 1.5);
                (lognormal.mu + lognormal.sigma * self.random.normal()).exp()
            }
            Fault::Bursty => {
                if self.random.uniform() < 0.001 {
                    self.fast = !self.fast;
                }
                -mean / if self.fast { 1.5 } else { 0.5 } * self.random.uniform().ln()
            }
            _ => -mean * self.random.uniform().ln(),
        }
    }

    fn slowness(&mut self) -> f64 {
        let Some(since) = self.measuring_since else { return if let Fault::Cold(f) = self.fault { f } else { 1.0 } };
        let age = (self.now - since) / self.unit;
        match self.fault {
            Fault::Linear(growth) => 1.0 + growth * age,
            Fault::Cold(factor) if age < 0.1 => factor,
            Fault::Walk(deviation) => {
                while self.walked_to < age {
                    self.walk += deviation * 0.1 * self.path.normal();
                    self.walked_to += 0.01;
                }
                self.walk.exp()
            }
            Fault::Stolen(spell) => {
                while self.changes_at < age {
                    self.fast = !self.fast;
                    self.changes_at -= spell * self.path.uniform().ln();
                }
                if self.fast { 1.0 } else { 2.0 }
            }
            Fault::Tail(growth) if self.random.uniform() < 0.01 + growth * age => 10.0,
            _ => 1.0,
        }
    }

    /// The next request: (intended, sent, received).
    pub fn request(&mut self) -> (f64, f64, f64) {
        self.now += self.gap();
        let mut intended = self.now;
        let mut sent = intended;
        if let Fault::Ticks(tick) = self.fault {
            sent = (intended / tick).ceil() * tick;
        }
        if let Fault::LateClient(cost, share, stall) = self.fault {
            // A stall is before the send, as of a thread that is not woken.
            let stalled = if self.random.uniform() < share { -stall * self.random.uniform().ln() } else { 0.0 };
            sent = intended.max(self.client_free) + stalled;
            self.client_free = sent + cost;
        }
        if !self.connections.is_empty() {
            sent = sent.max(self.connections[self.next_connection]);
            if matches!(self.fault, Fault::HiddenConnections(_)) {
                intended = sent;
                self.now = sent;
            }
        }
        let service = self.slowness() * self.server.service(&mut self.random);
        if let Fault::Stopped(length, every) = self.fault {
            while self.changes_at < sent {
                // It goes on where the work before it ends; a stop within another lengthens it.
                self.server_free = self.server_free.max(self.changes_at + length);
                self.changes_at -= every * self.path.uniform().ln();
            }
        }
        self.server_free = self.server_free.max(sent) + service;
        if !self.connections.is_empty() {
            self.connections[self.next_connection] = self.server_free;
            self.next_connection = (self.next_connection + 1) % self.connections.len();
        }
        (intended, sent, self.server_free)
    }

    /// Load without recording.
    pub fn load(&mut self, seconds: f64) -> Vec<Slice> {
        let (from, until) = (self.now, self.now + seconds * 1e9);
        let mut counts = Vec::new();
        while self.now < until {
            let (_, sent, received) = self.request();
            count(&mut counts, sent - from, received - from);
        }
        self.slices(counts, from)
    }

    /// A batch of about so many samples.
    pub fn batch(&mut self, samples: usize, sampling_rate: f64) -> Batch {
        let from = self.now;
        self.measuring_since.get_or_insert(from);
        let spacing = ((samples as f64 / sampling_rate) as usize / WINDOWS).max(WINDOW);
        let mut agent = AgentBatch { agent: "simulated".into(), ..AgentBatch::default() };
        let mut counts = Vec::new();
        // (when it came, its place among the samples) of all replies, in their order.
        let mut replies: Vec<(f64, Option<usize>)> = Vec::new();
        while agent.samples.len() < samples {
            let (intended, sent, received) = self.request();
            let recorded = agent.samples.len();
            if self.fault == Fault::MissedLoad && self.random.uniform() < 0.05 {
                continue;
            }
            let (intended_ns, sent_ns) = (intended as i64, sent as i64);
            let place = agent.requests as usize;
            // What a late client did is known of every request, as in a real batch.
            let spacing = if matches!(self.fault, Fault::LateClient(..)) { usize::MAX } else { spacing };
            let length = if spacing == usize::MAX { usize::MAX } else { WINDOW };
            if place.is_multiple_of(spacing) {
                agent.windows.push(Vec::with_capacity(WINDOW));
            }
            if place % spacing < length
                && let Some(window) = agent.windows.last_mut()
            {
                window.push(Send { intended_ns, sent_ns });
            }
            if self.random.uniform() < sampling_rate {
                let latency_ns = (received - intended).round();
                agent.samples.push(Sample { intended_ns, sent_ns, latency_ns, ..Sample::default() });
            }
            if matches!(self.fault, Fault::SharedReads(..)) {
                replies.push((received, (agent.samples.len() > recorded).then_some(recorded)));
            }
            agent.requests += 1;
            count(&mut counts, sent - from, received - from);
        }
        if let Fault::SharedReads(connections, every, how) = self.fault {
            self.share(&mut agent.samples, &replies, connections, every, how);
        }
        agent.slices = self.slices(counts, from);
        Batch { agents: vec![agent], sampling_rate, one_clock: true }
    }

    /// Gives replies that one read of a connection takes together the time of the last of them.
    fn share(
        &mut self,
        samples: &mut Vec<Sample>,
        replies: &[(f64, Option<usize>)],
        connections: usize,
        every: f64,
        how: Shared,
    ) {
        let mut by_connection: Vec<Vec<(f64, Option<usize>)>> = vec![Vec::new(); connections];
        for reply in replies {
            by_connection[self.random.below(connections)].push(*reply);
        }
        let mut left_out = vec![false; samples.len()];
        for together in
            by_connection.iter().flat_map(|c| c.chunk_by(|a, b| (a.0 / every).floor() == (b.0 / every).floor()))
        {
            let Some((last, _)) = together.last() else { continue };
            let read_before = (last / every).floor() * every;
            for (received, place) in &together[..together.len() - 1] {
                let Some(place) = *place else { continue };
                let sample = &mut samples[place];
                let earliest = read_before.max(sample.sent_ns as f64);
                left_out[place] = how == Shared::LeftOut;
                sample.latency_ns += (last - received).round();
                sample.shared_ns = if how == Shared::Bounded { (last - earliest).ceil() as u32 } else { 0 };
            }
        }
        let mut left_out = left_out.into_iter();
        samples.retain(|_| !left_out.next().unwrap_or(false));
    }

    fn slices(&self, mut counts: Vec<[u64; 2]>, from: f64) -> Vec<Slice> {
        let whole = ((self.now - from) / SLICE) as usize;
        let mut length = SLICE;
        if whole == 0 {
            // A batch shorter than a slice is one slice.
            length = self.now - from;
            counts = vec![counts.iter().fold([0, 0], |sum, c| [sum[0] + c[0], sum[1] + c[1]])];
        }
        // What remains behind the last whole slice is not looked at.
        counts.truncate(whole.max(1));
        let target = (self.rate * length).round() as u64;
        counts.iter().map(|c| Slice { duration_ns: length as u64, target, sent: c[0], answered: c[1] }).collect()
    }
}

fn count(counts: &mut Vec<[u64; 2]>, sent: f64, received: f64) {
    let (sent, received) = ((sent * (1.0 / SLICE)) as usize, (received * (1.0 / SLICE)) as usize);
    if counts.len() <= received {
        counts.resize(received + 1, [0, 0]);
    }
    counts[sent][0] += 1;
    counts[received][1] += 1;
}

/// The true quantile of the response time in the steady state, ns: in closed form for M/M/1, else by a simulation of so many
/// requests (counted to the nanosecond, no sample is lost).
#[allow(dead_code)]
pub fn truth(server: Server, load: f64, q: f64, requests: u64, seed: u64) -> f64 {
    if server == Server::Exponential {
        return -MEAN_SERVICE / (1.0 - load) * (1.0 - q).ln();
    }
    let mut world = World::new(server, load, Fault::None, seed);
    for _ in 0..100_000 {
        world.request();
    }
    let mut counts = vec![0u32; 20_000_000];
    for _ in 0..requests {
        let (intended, _, received) = world.request();
        let place = ((received - intended) as usize).min(counts.len() - 1);
        counts[place] += 1;
    }
    let wanted = (requests as f64 * q).ceil() as u64;
    let mut sum = 0;
    for (place, count) in counts.iter().enumerate() {
        sum += u64::from(*count);
        if sum >= wanted {
            return place as f64;
        }
    }
    f64::INFINITY
}

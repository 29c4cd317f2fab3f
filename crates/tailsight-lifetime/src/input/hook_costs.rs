//! The measured cost of the recorder's own hooks, in ns per event.
//!
//! In: the hooks of run.json. Out: the whole nanoseconds of a hook's run that wrote an event: the mean over all runs of the hook while
//! it was measured, including those that wrote nothing, minus the cost of an empty program. So the time taken from the server's is a
//! lower bound.

use tailsight_trace::event::{KINDS, Kind, VECTORS};
use tailsight_trace::meta::{Hook, TaskBreakpoints, Tls, Traced};
use tailsight_trace::{Event, fields};

/// Nanoseconds a run, by event.
#[derive(Clone, Debug)]
pub struct HookCosts {
    by_kind: [u16; 256],
    vectors: [Vec<u16>; 2],
    /// Of traced functions by number: at the begin, at the end.
    functions: Vec<[u16; 2]>,
}

impl Default for HookCosts {
    /// Nothing is known: nothing is taken.
    fn default() -> HookCosts {
        HookCosts { by_kind: [0; 256], vectors: [vec![], vec![]], functions: vec![] }
    }
}

/// Events that a hook writes beside its own: their cost is in that.
const WITH_OTHERS: [Kind; 7] =
    [Kind::RxHardware, Kind::FlowAddr6, Kind::Steal, Kind::Payload, Kind::PlainPiece, Kind::Lost, Kind::Current];

impl HookCosts {
    /// From the hooks of a run.
    pub fn of(hooks: &[Hook]) -> HookCosts {
        // The mean over the hooks, by how often each ran.
        let mean = |named: &dyn Fn(&str) -> bool| {
            let (mut ns, mut runs) = (0.0, 0);
            for hook in hooks.iter().filter(|h| h.on && named(&h.name)) {
                ns += hook.ns_per_run.unwrap_or(0.0) * hook.measured_runs as f64;
                runs += hook.measured_runs;
            }
            if runs == 0 { 0 } else { (ns / runs as f64).round().clamp(0.0, f64::from(u16::MAX)) as u16 }
        };
        let mut costs = HookCosts::default();
        for spec in KINDS.iter().filter(|s| !WITH_OTHERS.contains(&s.kind)) {
            let other = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
            costs.by_kind[spec.kind as usize] = mean(&|hook| spec.hook.split(other).any(|name| name == hook));
        }
        let vector = |end: &str| VECTORS.iter().map(|v| mean(&|hook| hook == format!("{v}_{end}"))).collect();
        costs.vectors = [vector("entry"), vector("exit")];
        costs
    }

    /// And what a hit of a traced function takes, with its trap into the kernel.
    #[must_use]
    pub fn with_traced(mut self, traced: Option<&Traced>) -> HookCosts {
        let whole = |ns: f64| ns.round().clamp(0.0, f64::from(u16::MAX)) as u16;
        let Some(traced) = traced else { return self };
        self.functions = traced.functions.iter().map(|f| f.hit_ns.unwrap_or_default().map(whole)).collect();
        let switch = traced.trap_ns.map_or(0.0, |[_, stepped]| stepped) + traced.program_ns.unwrap_or(0.0);
        self.by_kind[Kind::RoutineSwitch as usize] = whole(switch);
        self
    }

    /// And what a hit of a breakpoint at tasks takes: with one trap unless each place takes two, so that it is a lower bound.
    #[must_use]
    pub fn with_breakpoints(mut self, breakpoints: Option<&TaskBreakpoints>) -> HookCosts {
        let Some(breakpoints) = breakpoints else { return self };
        let [emulated, stepped] = breakpoints.hit_ns.unwrap_or_default();
        let hit_ns = if breakpoints.stepped_places < breakpoints.places { emulated } else { stepped };
        for kind in [Kind::RoutineRun, Kind::RoutineWoken, Kind::RoutineAsks, Kind::RoutineMade] {
            self.by_kind[kind as usize] = hit_ns.round().clamp(0.0, f64::from(u16::MAX)) as u16;
        }
        self
    }

    /// And what a call of a function of TLS takes with its two breakpoints.
    #[must_use]
    pub fn with_tls(mut self, tls: Option<&Tls>) -> HookCosts {
        if let Some(call_ns) = tls.and_then(|tls| tls.call_ns) {
            self.by_kind[Kind::PlainText as usize] = call_ns.round().clamp(0.0, f64::from(u16::MAX)) as u16;
        }
        self
    }

    /// Of the run that wrote this event, ns.
    pub fn of_event(&self, kind: Kind, event: &Event) -> u16 {
        let vector =
            |which: usize| self.vectors[which].get(usize::from(fields::Vector::of(event).vector)).copied().unwrap_or(0);
        let function =
            |end: usize| self.functions.get(fields::Function::of(event).function as usize).map_or(0, |ns| ns[end]);
        match kind {
            Kind::VectorEntry => vector(0),
            Kind::VectorExit => vector(1),
            Kind::FunctionBegin => function(0),
            Kind::FunctionEnd => function(1),
            kind => self.by_kind[kind as usize],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hit where a task asks to be made ready cost nothing, and was the server's own time.
    #[test]
    fn each_breakpoint_at_tasks_costs_a_trap() {
        let costs_ns = |places, stepped_places| {
            let hit_ns = Some([620.4, 8_900.0]);
            let said = TaskBreakpoints { places, stepped_places, hit_ns, ..TaskBreakpoints::default() };
            let costs = HookCosts::default().with_breakpoints(Some(&said));
            [Kind::RoutineRun, Kind::RoutineWoken, Kind::RoutineAsks]
                .map(|kind| costs.of_event(kind, &Event::default()))
        };
        assert_eq!((costs_ns(9, 0), costs_ns(9, 1), costs_ns(9, 9)), ([620; 3], [620; 3], [8_900; 3]));
    }

    #[test]
    fn a_call_of_tls_costs_both_of_its_breakpoints() {
        let costs = HookCosts::default().with_tls(Some(&Tls { call_ns: Some(11_937.9), ..Tls::default() }));
        let cost_ns = |kind| costs.of_event(kind, &Event::default());
        assert_eq!((cost_ns(Kind::PlainText), cost_ns(Kind::PlainPiece)), (11_938, 0));
    }

    #[test]
    fn an_event_costs_what_its_hook_was_measured_to_take() {
        let hook = |name: &str, ns: Option<f64>, runs, on| Hook {
            name: name.into(),
            ns_per_run: ns,
            measured_runs: runs,
            on,
            ..Hook::default()
        };
        let costs = HookCosts::of(&[
            hook("sched_switch", Some(120.4), 10, true),
            hook("local_timer_entry", Some(60.0), 5, true),
            hook("reschedule_exit", Some(70.0), 5, true),
            hook("udp_sendmsg", Some(40.0), 30, true),
            hook("tcp_sendmsg_locked", Some(80.0), 10, true),
            hook("net_dev_queue", Some(99.0), 10, false),
            hook("softirq_entry", None, 0, true),
        ]);
        let cost_ns = |kind, aux| costs.of_event(kind, &Event { aux, ..Event::default() });
        assert_eq!(cost_ns(Kind::SchedSwitch, 0), 120);
        assert_eq!(
            (cost_ns(Kind::VectorEntry, 0), cost_ns(Kind::VectorEntry, 1), cost_ns(Kind::VectorExit, 1)),
            (60, 0, 70)
        );
        assert_eq!(cost_ns(Kind::SendBegin, 0), 50, "(40 x 30 + 80 x 10) / 40");
        assert_eq!((cost_ns(Kind::TxQueue, 0), cost_ns(Kind::SoftirqEntry, 0)), (0, 0));
        assert_eq!(cost_ns(Kind::Steal, 0), 0, "written by sched_switch's own run");
    }
}

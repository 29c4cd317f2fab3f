//! Any bytes as the messages of an agent's protocol, for fuzzing. In: bytes. Out: nothing; what is read is sound, or refused.

use prost::Message;

use crate::proto;
use crate::wire::{Records, Summary, chunks};
use crate::{AgentAddress, Policy};

/// Reads the bytes as everything that an agent or a coordinator may be sent, by their first byte. Nothing is connected to, and no name
/// is resolved.
#[doc(hidden)]
pub fn read_any(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 4 {
        0 => {
            let Ok(message) = proto::Records::decode(bytes) else { return };
            let mut records = Records::default();
            if records.take(message) {
                records.shift(-1);
                let mut again = Records::default();
                assert!(chunks(&records).into_iter().all(|chunk| again.take(chunk)), "what was read cannot be written");
                assert_eq!(format!("{records:?}"), format!("{again:?}"));
            }
        }
        1 => {
            let Ok(request) = proto::LoadRequest::decode(bytes) else { return };
            admit(&request);
        }
        2 => {
            let Ok(plan) = std::str::from_utf8(bytes) else { return };
            admit(&proto::LoadRequest { plan: plan.to_owned(), ..proto::LoadRequest::default() });
            let _ = serde_json::from_str::<Summary>(plan);
        }
        _ => {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Ok(address) = text.parse::<AgentAddress>() {
                assert_eq!(address.to_string().parse::<AgentAddress>().ok().as_ref(), Some(&address));
            }
        }
    }
}

fn admit(request: &proto::LoadRequest) {
    let Ok(plan) = serde_json::from_str::<tailsight_load::Plan>(&request.plan) else { return };
    if plan.target.host().is_some_and(|host| host.parse::<std::net::IpAddr>().is_err()) {
        return;
    }
    let policy = Policy::default();
    let Ok(admitted) = policy.admit(request) else { return };
    let plan = admitted.plan;
    let within = plan.connections <= policy.connections
        && plan.max_samples <= policy.samples
        && plan.duration_ns.is_some_and(|ns| u128::from(ns) <= policy.duration.as_nanos())
        && plan.workload.keys <= policy.keys;
    assert!(within, "admitted against the policy: {plan:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tailsight_load::{Plan, Protocol};

    /// A good plan with pieces of it replaced by numbers that are hard and by other pieces of it.
    fn damaged() -> impl Strategy<Value = Vec<u8>> {
        const HARD: [&str; 12] = [
            "0",
            "1",
            "-1",
            "18446744073709551615",
            "4294967295",
            "1e308",
            "null",
            "true",
            "\"spin\"",
            "\"closed:9\"",
            "[]",
            "{}",
        ];
        let plan =
            serde_json::to_value(Plan::new("tcp://127.0.0.1:9".parse().unwrap(), Protocol::MemcachedText)).unwrap();
        let keys: Vec<String> = plan.as_object().unwrap().keys().cloned().collect();
        let change = (proptest::sample::select(keys), proptest::sample::select(&HARD[..]));
        (proptest::collection::vec(change, 0..4), any::<bool>()).prop_map(move |(changes, cut)| {
            let mut plan = plan.clone();
            for (key, value) in changes {
                plan[key] = serde_json::from_str(value).unwrap();
            }
            let mut text = plan.to_string();
            if cut {
                text.truncate(text.len() * 2 / 3);
            }
            [vec![2], text.into_bytes()].concat()
        })
    }

    /// Records as they are sent, cut and with bytes changed.
    fn records() -> impl Strategy<Value = Vec<u8>> {
        let flips = proptest::collection::vec((any::<usize>(), any::<u8>()), 0..6);
        (1_usize..40, flips, any::<usize>()).prop_map(|(n, flips, cut)| {
            let sample = tailsight_load::Sample { intended_ns: 5, called_ns: 6, received_ns: 9, ..Default::default() };
            let rows = Records { samples: vec![sample; n], ..Records::default() };
            let mut bytes = chunks(&rows)[0].encode_to_vec();
            for (at, value) in flips {
                let at = at % bytes.len();
                bytes[at] = value;
            }
            bytes.truncate(bytes.len() - cut % 3);
            [vec![0], bytes].concat()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// The fuzz target without the fuzzer.
        #[test]
        fn what_a_peer_sends_is_read_or_refused(data in prop_oneof![
            damaged(), records(), proptest::collection::vec(any::<u8>(), 0..300)
        ]) {
            read_any(&data);
        }
    }
}

//! Warnings for a run without traffic. In: what was recorded. Out: warnings for run.json.

use tailsight_trace::meta::RunMeta;

/// Why there are no messages. `arrived`: packets with data for the target's ports.
pub fn no_traffic(meta: &RunMeta, arrived: u64) -> String {
    let ports: Vec<String> = meta.target.ports.iter().map(u16::to_string).collect();
    let ports = ports.join(", ");
    if ports.is_empty() {
        "the target has no server port: it has no listening socket and no connection".into()
    } else if arrived > 0 {
        format!(
            "{arrived} packets with data arrived for port {ports}, but the target made no receive call: another \
             process has \
             the connections (--port finds it), or the target reads by a call that no hook sees (splice)"
        )
    } else {
        format!("no message reached the target on port {ports} while recording; is there a load?")
    }
}

/// Payload was asked for, packets came, and nothing of them was kept.
pub fn no_payload(protocol: &str, kernel: &str) -> String {
    format!(
        "--protocol {protocol} kept no payload, so messages are segments and not requests: reading payload needs \
         Linux 6.12 \
         or newer, this is {kernel}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that reads with splice(2) was told that nobody sends it anything.
    #[test]
    fn traffic_that_is_not_read_is_not_called_no_traffic() {
        let mut meta = RunMeta::default();
        assert!(no_traffic(&meta, 0).contains("no server port"));
        meta.target.ports = vec![80, 443];
        assert!(no_traffic(&meta, 0).contains("port 80, 443") && no_traffic(&meta, 0).contains("is there a load?"));
        let text = no_payload("resp", "6.8.0");
        assert!(text.contains("--protocol resp") && text.contains("6.12") && text.contains("6.8.0"), "{text}");
        let text = no_traffic(&meta, 972);
        assert!(text.contains("972") && text.contains("splice") && !text.contains("is there a load?"), "{text}");
    }
}

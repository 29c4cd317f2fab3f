//! Call stacks as a profile of pprof (<https://github.com/google/pprof/blob/main/proto/profile.proto>), gzipped as pprof expects.
//!
//! In: call stacks, outermost function first, with ns of a mean message of the focus and of the reference. Out: a profile with a
//! value for each, `focus`, which it opens on, and `reference`: `pprof -sample_index=reference`.

use std::collections::HashMap;

use prost::Message;

use crate::html::gzip;

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

/// The profile, gzipped. `started_ns` since 1970, `duration_ns`: of the recording.
#[must_use]
pub fn profile(stacks: &[(Vec<String>, [f64; 2])], started_ns: u64, duration_ns: u64) -> Vec<u8> {
    let mut out = Profile {
        // The first text is the empty one.
        string_table: ["", "focus", "reference", "nanoseconds"].map(str::to_owned).to_vec(),
        sample_type: vec![ValueType { kind: 1, unit: 3 }, ValueType { kind: 2, unit: 3 }],
        time_nanos: i64::try_from(started_ns).unwrap_or(0),
        duration_nanos: i64::try_from(duration_ns).unwrap_or(0),
        // Without this pprof opens on the last one.
        default_sample_type: 1,
        ..Profile::default()
    };
    let mut ids: HashMap<&str, u64> = HashMap::new();
    for (frames, value) in stacks {
        let mut location_id: Vec<u64> = Vec::with_capacity(frames.len());
        // Innermost first.
        for name in frames.iter().rev() {
            let next = ids.len() as u64 + 1;
            let id = *ids.entry(name).or_insert_with(|| {
                out.string_table.push(name.clone());
                out.function.push(Function { id: next, name: out.string_table.len() as i64 - 1 });
                out.location.push(Location { id: next, line: vec![Line { function_id: next }] });
                next
            });
            location_id.push(id);
        }
        out.sample.push(Sample { location_id, value: value.iter().map(|ns| ns.round() as i64).collect() });
    }
    gzip(&out.encode_to_vec())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn stacks_are_innermost_first_and_functions_are_there_once() {
        let stacks =
            [(vec!["main".to_owned(), "work".to_owned()], [1500.4, 20.0]), (vec!["main".to_owned()], [0.0, 7.0])];
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(&profile(&stacks, 9, 5)[..]).read_to_end(&mut bytes).expect("gzip");
        let p = Profile::decode(&bytes[..]).expect("a profile");
        let name = |id: u64| {
            let function = p.function.iter().find(|f| f.id == id).expect("its function");
            p.string_table[function.name as usize].as_str()
        };
        let names_and_values = |s: &Sample| -> (Vec<&str>, Vec<i64>) {
            let line = |l: &u64| p.location.iter().find(|x| x.id == *l).expect("its location").line[0].function_id;
            (s.location_id.iter().map(|l| name(line(l))).collect(), s.value.clone())
        };
        assert_eq!(names_and_values(&p.sample[0]), (vec!["work", "main"], vec![1500, 20]));
        assert_eq!(names_and_values(&p.sample[1]), (vec!["main"], vec![0, 7]));
        assert_eq!(p.string_table[p.default_sample_type as usize], "focus");
        assert_eq!((p.function.len(), p.string_table[0].as_str(), p.time_nanos), (2, "", 9));
    }
}

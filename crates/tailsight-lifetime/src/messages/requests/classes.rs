//! Classes of requests, by which cohorts are formed. In: a parsed request. Out: an index into the run's classes.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use tailsight_protocol::{Command, Protocol, Shape, bucket};

/// A class of requests. Sizes are the upper ends of power-of-two ranges (`64` is 33 to 64), 0 where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestClass {
    /// Its name, e.g. `get k16..32`, `set v1k..2k`, `GET /report`.
    pub name: String,
    /// The command or method.
    pub command: String,
    /// Keys that it names.
    pub keys: u64,
    /// Bytes of its first key; 0 for requests that carry a value and for HTTP, whose cost does not follow it.
    pub key_bytes: u64,
    /// Bytes that it carries to store.
    pub value_bytes: u64,
}

/// The class of bytes in which no request is known.
pub const UNFRAMED: &str = "unframed";
/// The class of what is beyond [`MOST_CLASSES`] classes.
const OTHER: &str = "other";
/// Classes of a run; commands come from the wire and could be anything.
const MOST_CLASSES: usize = 1024;

type Key = (Command, Shape, u64, u64, u64);

/// The classes of a run.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    list: Vec<RequestClass>,
    ids: FxHashMap<Key, u16>,
}

impl Classes {
    /// The class of a request.
    pub fn of(&mut self, protocol: Protocol, class: &tailsight_protocol::Class) -> u16 {
        self.unframed();
        let http = protocol.is_http();
        let key_bytes = if http || class.value_bytes > 0 { 0 } else { bucket(u64::from(class.key_bytes)) };
        let keys = if http { 0 } else { bucket(u64::from(class.keys)) };
        let key = (class.command, class.path, keys, key_bytes, bucket(class.value_bytes));
        let full = self.list.len() >= MOST_CLASSES;
        match self.ids.entry(key) {
            Entry::Occupied(class) => *class.get(),
            Entry::Vacant(_) if full => self.other(),
            Entry::Vacant(place) => {
                self.list.push(described(key));
                *place.insert(self.list.len() as u16 - 1)
            }
        }
    }

    /// The class of bytes in which no request is known.
    pub fn unframed(&mut self) -> u16 {
        if self.list.is_empty() {
            self.list.push(RequestClass { name: UNFRAMED.into(), ..RequestClass::default() });
        }
        0
    }

    fn other(&mut self) -> u16 {
        if self.list.len() == MOST_CLASSES {
            self.list.push(RequestClass { name: OTHER.into(), ..RequestClass::default() });
        }
        MOST_CLASSES as u16
    }

    /// All of them, by index.
    pub fn into_list(self) -> Vec<RequestClass> {
        self.list
    }
}

fn described((command, path, keys, key_bytes, value_bytes): Key) -> RequestClass {
    let mut name = command.as_str().to_owned();
    if !path.as_str().is_empty() {
        name += &format!(" {}", path.as_str());
    }
    if keys > 1 {
        name += &format!(" x{}", range(keys));
    }
    if key_bytes > 0 {
        name += &format!(" k{}", range(key_bytes));
    }
    if value_bytes > 0 {
        name += &format!(" v{}", range(value_bytes));
    }
    RequestClass { name, command: command.as_str().into(), keys, key_bytes, value_bytes }
}

/// The range of a power-of-two bucket: above half of it, up to it.
fn range(upto: u64) -> String {
    if upto == 1 { "1".into() } else { format!("{}..{}", short(upto / 2), short(upto)) }
}

fn short(n: u64) -> String {
    match n {
        0..1024 => n.to_string(),
        1024..1_048_576 => format!("{}k", n >> 10),
        1_048_576..1_073_741_824 => format!("{}M", n >> 20),
        _ => format!("{}G", n >> 30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_protocol::Class;

    fn class(command: &str, keys: u32, key_bytes: u32, value_bytes: u64) -> Class {
        let path = Shape::default();
        Class { command: Command::exact(command.as_bytes()), keys, key_bytes, value_bytes, path, key_hash: 7 }
    }

    #[test]
    fn classes_are_named_by_command_and_ranges() {
        let mut classes = Classes::default();
        let mut name = |protocol, class: &Class| {
            let id = classes.of(protocol, class);
            assert_eq!(id, classes.of(protocol, class));
            classes.clone().into_list()[usize::from(id)].name.clone()
        };
        assert_eq!(name(Protocol::Memcached, &class("get", 1, 17, 0)), "get k16..32");
        assert_eq!(name(Protocol::Memcached, &class("get", 10, 3, 0)), "get x8..16 k2..4");
        assert_eq!(name(Protocol::Memcached, &class("set", 1, 9, 2048)), "set v1k..2k");
        assert_eq!(name(Protocol::Http1, &class("GET", 1, 100, 0)), "GET");
        let report = Class { path: Shape::of(b"/v1/report/7"), ..class("GET", 1, 12, 0) };
        assert_eq!(name(Protocol::Http1, &report), "GET /v1/report/*");
        let call = Class { path: Shape::of(b"/pkg.Service/Method"), ..class("POST", 1, 19, 12) };
        assert_eq!(name(Protocol::Http2, &call), "POST /pkg.Service/Method v8..16");
        assert_eq!(name(Protocol::Resp, &class("get", 1, 1, 0)), "get k1");
        assert_eq!(name(Protocol::Resp, &class("ping", 0, 0, 0)), "ping");
        assert_eq!(classes.into_list()[0].name, UNFRAMED);
    }

    #[test]
    fn there_is_an_end_to_classes() {
        let mut classes = Classes::default();
        let ids: Vec<u16> = (0..3000).map(|i| classes.of(Protocol::Resp, &class(&format!("c{i}"), 0, 0, 0))).collect();
        let list = classes.into_list();
        assert_eq!(list.len(), MOST_CLASSES + 1);
        assert!(ids.iter().all(|&i| usize::from(i) < list.len()));
        assert_eq!(list[usize::from(ids[2999])].name, "other");
    }
}

//! From a run to its messages and their exact lifetimes. No I/O except the Parquet writer.

pub mod model;

use std::collections::BTreeMap;

pub use model::{Context, Flow, Frame, Leg, Message, Owner, OwnerId, Part, PathSpan, Role};

/// Every message of a run with the exact partition of its time.
#[derive(Clone, Debug, Default)]
pub struct Lifetimes {
    /// The application's name.
    pub app: String,
    /// Messages in order of arrival; `messages[i].id == i`.
    pub messages: Vec<Message>,
    /// Flows, by [`Message::flow`].
    pub flows: Vec<Flow>,
    /// Owners, by [`OwnerId`].
    pub owners: Vec<Owner>,
    /// Names that frames refer to.
    pub symbols: Vec<String>,
    /// Messages that could not be followed to the receive call, by reason.
    pub incomplete: BTreeMap<String, u64>,
    /// Parts of each leg (receive, service, transmit): message i owns `parts[leg][offsets[leg][i]..offsets[leg][i + 1]]`.
    parts: [Vec<Part>; 3],
    offsets: [Vec<u32>; 3],
}

impl Lifetimes {
    /// The parts of a message's leg: they sum to [`Message::latency`] exactly. Empty when the leg was not seen.
    /// For [`Leg::Total`], the parts of the three legs, one after the other (an owner may occur in each).
    pub fn parts(&self, message: u32, leg: Leg) -> Vec<Part> {
        let one = |l: usize| {
            let o = &self.offsets[l];
            let i = message as usize;
            &self.parts[l][o[i] as usize..o[i + 1] as usize]
        };
        match leg {
            Leg::Receive => one(0).to_vec(),
            Leg::Service => one(1).to_vec(),
            Leg::Transmit => one(2).to_vec(),
            Leg::Total => [one(0), one(1), one(2)].concat(),
        }
    }

    /// Builds lifetimes from given parts, one `[receive, service, transmit]` a message (for tests of what comes after).
    pub fn from_parts(
        app: &str,
        messages: Vec<Message>,
        flows: Vec<Flow>,
        owners: Vec<Owner>,
        parts: Vec<[Vec<Part>; 3]>,
    ) -> Lifetimes {
        let mut out = Lifetimes { app: app.into(), messages, flows, owners, ..Lifetimes::default() };
        for leg in 0..3 {
            out.offsets[leg].push(0);
            for message in &parts {
                out.parts[leg].extend_from_slice(&message[leg]);
                out.offsets[leg].push(out.parts[leg].len() as u32);
            }
        }
        out
    }
}

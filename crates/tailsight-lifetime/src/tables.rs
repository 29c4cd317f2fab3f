//! `messages.parquet` and `lifetimes.parquet`: the derived tables, one row a message, and one row for each message, leg,
//! role and owner. `turns.parquet` and `waits.parquet`: one row a turn and a sleep of a thread. docs/lifetimes.md describes the columns.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringDictionaryBuilder, UInt32Builder, UInt64Builder};
use arrow_array::types::{UInt16Type, UInt32Type};
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, StringArray, UInt16Array, UInt32Array, UInt64Array};
use arrow_schema::{Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use rustc_hash::FxHashMap;
use tailsight_output::Whole;

use crate::model::{Leg, Message, Role, Rule, Sent, flags};
use crate::path::judged::Purpose;
use crate::service_rows::{TurnEnd, TurnRow, WaitRow};
use crate::{Analysis, LEGS, Lifetimes};

/// A table could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file and the cause.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause: of the system, or of the writer of Parquet.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    fn write(path: &Path, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Write { path: path.into(), source: source.into() }
    }
}

/// Messages in one row group: bounds the memory of writing.
const ROWS: usize = 100_000;

/// Columns that may be null, whether or not the first messages have them all.
const NULLABLE: [&str; 34] = [
    "ended_by",
    "waker_tid",
    "waker",
    "message",
    "call_waits_for",
    "was_for",
    "rule",
    "answered_ns",
    "wait_ns",
    "ideal_ns",
    "t1_t2_ns",
    "t2_t3_ns",
    "t3_t4_ns",
    "t4_t5_ns",
    "t5_t6_ns",
    "nic_ns",
    "nic_error_ns",
    "nic_tx_ns",
    "nic_tx_error_ns",
    "class",
    "pairing",
    "request_bytes",
    "reply_bytes",
    "handoff_ns",
    "wake_ns",
    "on_cpu_ns",
    "recv_enter_ns",
    "recv_ns",
    "send_ns",
    "xmit_ns",
    "receive_ns",
    "service_ns",
    "transmit_ns",
    "total_ns",
];

/// Writes the tables into a directory and returns the names of their files. `ideal_ns`: what an ideal server would have taken for each
/// message, by its id; empty where no queue fits the server.
///
/// # Errors
/// [`Error::Write`].
pub fn write(dir: &Path, lifetimes: &Lifetimes, ideal_ns: &[Option<u64>]) -> Result<Vec<&'static str>, Error> {
    let mut names = vec!["messages.parquet", "lifetimes.parquet"];
    messages(&dir.join(names[0]), lifetimes, ideal_ns)?;
    parts(&dir.join(names[1]), lifetimes)?;
    // Most servers only answer.
    if !lifetimes.sent.is_empty() {
        names.push("sent.parquet");
        sent(&dir.join("sent.parquet"), lifetimes)?;
    }
    Ok(names)
}

/// Writes what the threads did, `turns.parquet` and `waits.parquet`, and returns the names of the files.
///
/// # Errors
/// [`Error::Write`].
pub fn write_threads(dir: &Path, analysis: &Analysis) -> Result<Vec<&'static str>, Error> {
    let names = vec!["turns.parquet", "waits.parquet"];
    turns(&dir.join(names[0]), analysis)?;
    waits(&dir.join(names[1]), analysis)?;
    Ok(names)
}

/// One row a turn of a thread.
fn turns(path: &Path, analysis: &Analysis) -> Result<(), Error> {
    let turns = analysis.turns();
    table(
        path,
        chunks(turns.len()).map(|range| {
            let rows = &turns[range];
            let u64s =
                |f: fn(&TurnRow) -> u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(rows.iter().map(f))) };
            let u32s =
                |f: fn(&TurnRow) -> u32| -> ArrayRef { Arc::new(UInt32Array::from_iter_values(rows.iter().map(f))) };
            let list = |f: fn(&TurnRow) -> &[u32]| -> ArrayRef {
                let mut out = ListBuilder::new(UInt32Builder::new());
                for row in rows {
                    out.values().append_slice(f(row));
                    out.append(true);
                }
                Arc::new(out.finish())
            };
            let thread = |row: &TurnRow| Some(analysis.thread_name(row.tid));
            vec![
                ("tid", u32s(|row| row.tid)),
                ("thread", names(rows.iter().map(thread))),
                ("from_ns", u64s(|row| row.from_ns)),
                ("to_ns", u64s(|row| row.to_ns)),
                ("took", list(|row| &row.took)),
                ("answered", list(|row| &row.answered)),
                ("asked", u32s(|row| row.asked)),
                ("pushed", u32s(|row| row.pushed)),
                ("ended_by", names(rows.iter().map(|row| row.ended_by.map(TurnEnd::name)))),
            ]
        }),
    )
}

/// One row a sleep of a thread.
fn waits(path: &Path, analysis: &Analysis) -> Result<(), Error> {
    let symbols = &analysis.lifetimes.symbols;
    let mut waits: Vec<WaitRow> = Vec::new();
    analysis.waits(|row| waits.push(*row));
    table(
        path,
        chunks(waits.len()).map(|range| {
            let rows = &waits[range];
            let u64s =
                |f: fn(&WaitRow) -> u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(rows.iter().map(f))) };
            let maybe =
                |f: fn(&WaitRow) -> Option<u32>| -> ArrayRef { Arc::new(rows.iter().map(f).collect::<UInt32Array>()) };
            let bools = |f: fn(&WaitRow) -> bool| -> ArrayRef {
                Arc::new(rows.iter().map(|row| Some(f(row))).collect::<BooleanArray>())
            };
            let of_task =
                |row: &WaitRow| row.ended_by.filter(|(waker, _)| !waker.interrupt).map(|(waker, _)| waker.tid);
            let was_for = |row: &WaitRow| match row.purpose {
                Purpose::Work => Some("work".to_owned()),
                Purpose::Thread => Some("thread".to_owned()),
                Purpose::Named(frame) => Some(frame.name(symbols)),
                Purpose::Call => None,
            };
            vec![
                ("tid", Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.tid))) as ArrayRef),
                ("thread", names(rows.iter().map(|row| Some(analysis.thread_name(row.tid))))),
                ("from_ns", u64s(|row| row.from_ns)),
                ("to_ns", u64s(|row| row.to_ns)),
                ("is_whole", bools(|row| row.is_whole)),
                ("sleep", names(rows.iter().map(|row| Some(row.frame().name(symbols))))),
                ("call_waits_for", names(rows.iter().map(WaitRow::call_waits_for))),
                ("ended_by", names(rows.iter().map(|row| row.ended_by.map(|(_, edge)| edge.name())))),
                ("waker_tid", Arc::new(rows.iter().map(of_task).collect::<UInt32Array>())),
                ("waker", names(rows.iter().map(|row| of_task(row).map(|tid| analysis.thread_name(tid))))),
                ("tried_again", bools(|row| row.tried_again)),
                ("message", maybe(|row| row.message)),
                ("was_for", names(rows.iter().map(was_for))),
                ("rule", names(rows.iter().map(|row| row.rule.map(Rule::id)))),
            ]
        }),
    )
}

/// A column of names, of which few are different.
fn names<S: AsRef<str>>(values: impl Iterator<Item = Option<S>>) -> ArrayRef {
    let mut out = StringDictionaryBuilder::<UInt32Type>::new();
    values.for_each(|value| out.append_option(value));
    Arc::new(out.finish())
}

/// What the application sent by itself.
fn sent(path: &Path, lifetimes: &Lifetimes) -> Result<(), Error> {
    table(
        path,
        chunks(lifetimes.sent.len()).map(|range| {
            let rows = &lifetimes.sent[range];
            let text = |f: &dyn Fn(&Sent) -> String| -> ArrayRef {
                Arc::new(rows.iter().map(|s| Some(f(s))).collect::<StringArray>())
            };
            let stage = |f: fn(&Sent) -> u64| -> ArrayRef {
                Arc::new(rows.iter().map(|s| Some(f(s)).filter(|&t| t != 0)).collect::<UInt64Array>())
            };
            let u32s =
                |f: fn(&Sent) -> u32| -> ArrayRef { Arc::new(UInt32Array::from_iter_values(rows.iter().map(f))) };
            vec![
                ("kind", text(&|s| s.kind.name().into())),
                ("flow", text(&|s| lifetimes.flows[s.flow as usize].name.clone())),
                ("bytes", u32s(|s| s.bytes)),
                ("tid", u32s(|s| s.tid)),
                ("send_ns", stage(|s| s.send_ns)),
                ("xmit_ns", stage(|s| s.xmit_ns)),
                ("transmit_ns", Arc::new(rows.iter().map(Sent::transmit_ns).collect::<UInt64Array>())),
                ("answered_ns", stage(|s| s.answered_ns)),
                ("wait_ns", Arc::new(rows.iter().map(Sent::wait_ns).collect::<UInt64Array>())),
            ]
        }),
    )
}

/// Writes batches of the same columns as one file: beside its place, and there when it is whole.
fn table(path: &Path, batches: impl Iterator<Item = Vec<(&'static str, ArrayRef)>>) -> Result<(), Error> {
    let mut open: Option<(Arc<Schema>, ArrowWriter<Whole>)> = None;
    for columns in batches {
        if open.is_none() {
            let field = |name: &str, c: &ArrayRef| Field::new(name, c.data_type().clone(), NULLABLE.contains(&name));
            let fields: Vec<Field> = columns.iter().map(|(name, c)| field(name, c)).collect();
            let schema = Arc::new(Schema::new(fields));
            let file = Whole::create(path).map_err(|e| Error::write(path, e))?;
            let properties = WriterProperties::builder().set_compression(Compression::ZSTD(Default::default())).build();
            let writer =
                ArrowWriter::try_new(file, schema.clone(), Some(properties)).map_err(|e| Error::write(path, e))?;
            open = Some((schema, writer));
        }
        if let Some((schema, writer)) = &mut open {
            let arrays = columns.into_iter().map(|(_, c)| c).collect();
            let batch = RecordBatch::try_new(schema.clone(), arrays).map_err(|e| Error::write(path, e))?;
            writer.write(&batch).map_err(|e| Error::write(path, e))?;
        }
    }
    match open {
        // It writes the end of the file.
        Some((_, writer)) => {
            let file = writer.into_inner().map_err(|e| Error::write(path, e))?;
            file.finish().map_err(|e| Error::write(path, e))
        }
        None => Ok(()),
    }
}

/// Ranges of messages; one empty range when there are none, so that the file exists with its columns.
fn chunks(n: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..n.max(1)).step_by(ROWS).map(move |from| from..(from + ROWS).min(n).max(from.min(n)))
}

fn messages(path: &Path, lifetimes: &Lifetimes, ideal_ns: &[Option<u64>]) -> Result<(), Error> {
    table(
        path,
        chunks(lifetimes.messages.len()).map(|range| {
            let rows = &lifetimes.messages[range];
            let u64s =
                |f: fn(&Message) -> u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(rows.iter().map(f))) };
            // A stage that was not seen is null, not 0.
            let stage = |f: fn(&Message) -> u64| -> ArrayRef {
                Arc::new(rows.iter().map(|m| Some(f(m)).filter(|&t| t != 0)).collect::<UInt64Array>())
            };
            let u32s =
                |f: fn(&Message) -> u32| -> ArrayRef { Arc::new(UInt32Array::from_iter_values(rows.iter().map(f))) };
            let u16s =
                |f: fn(&Message) -> u16| -> ArrayRef { Arc::new(UInt16Array::from_iter_values(rows.iter().map(f))) };
            let bound =
                |f: fn(&Message) -> Option<u32>| -> ArrayRef { Arc::new(rows.iter().map(f).collect::<UInt32Array>()) };
            let leg = |leg: Leg| -> ArrayRef { Arc::new(rows.iter().map(|m| m.latency(leg)).collect::<UInt64Array>()) };
            let between = |i: usize| -> ArrayRef {
                Arc::new(rows.iter().map(|m| m.stages().map(|stages| stages[i])).collect::<UInt64Array>())
            };
            let ideal = |m: &Message| ideal_ns.get(m.id as usize).copied().flatten();
            let is_framed = |m: &Message| lifetimes.framing.is_some() && m.flags & flags::UNFRAMED == 0;
            let framed = |f: fn(&Message) -> Option<u32>| -> ArrayRef {
                Arc::new(rows.iter().map(|m| f(m).filter(|_| is_framed(m))).collect::<UInt32Array>())
            };
            let (mut class, mut pairing) =
                (StringDictionaryBuilder::<UInt16Type>::new(), StringDictionaryBuilder::<UInt16Type>::new());
            for m in rows {
                class.append_option(lifetimes.class(m).map(|c| &c.name));
                pairing.append_option(m.pairing());
            }
            let flow = rows.iter().map(|m| lifetimes.flows[m.flow as usize].name.as_str());
            vec![
                ("id", u32s(|m| m.id)),
                ("flow", Arc::new(StringArray::from_iter_values(flow)) as ArrayRef),
                ("bytes", u32s(|m| m.bytes)),
                ("tid", u32s(|m| m.tid)),
                ("nic_ns", stage(|m| m.nic_ns)),
                ("nic_error_ns", bound(|m| (m.nic_ns != 0).then_some(m.nic_error_ns))),
                ("driver_ns", u64s(|m| m.driver_ns)),
                ("stack_ns", u64s(|m| m.stack_ns)),
                ("handoff_ns", stage(|m| m.handoff_ns)),
                ("wake_ns", stage(|m| m.wake_ns)),
                ("on_cpu_ns", stage(|m| m.on_cpu_ns)),
                ("recv_enter_ns", stage(|m| m.recv_enter_ns)),
                ("recv_ns", stage(|m| m.recv_ns)),
                ("send_ns", stage(|m| m.send_ns)),
                ("xmit_ns", stage(|m| m.xmit_ns)),
                ("nic_tx_ns", stage(|m| m.nic_tx_ns)),
                ("nic_tx_error_ns", bound(|m| (m.nic_tx_ns != 0).then_some(m.nic_tx_error_ns))),
                ("driver_cpu", u16s(|m| m.driver_cpu)),
                ("handoff_cpu", u16s(|m| m.handoff_cpu)),
                ("recv_cpu", u16s(|m| m.recv_cpu)),
                ("ahead", u32s(|m| m.ahead)),
                ("batch", u16s(|m| m.batch)),
                ("flags", u16s(|m| m.flags)),
                ("class", Arc::new(class.finish())),
                ("request_bytes", framed(|m| Some(m.bytes))),
                ("reply_bytes", framed(|m| Some(m.reply_bytes).filter(|&b| b > 0))),
                ("pairing", Arc::new(pairing.finish())),
                ("receive_ns", leg(Leg::Receive)),
                ("service_ns", leg(Leg::Service)),
                ("transmit_ns", leg(Leg::Transmit)),
                ("total_ns", leg(Leg::Total)),
                ("t1_t2_ns", between(0)),
                ("t2_t3_ns", between(1)),
                ("t3_t4_ns", between(2)),
                ("t4_t5_ns", between(3)),
                ("t5_t6_ns", between(4)),
                ("ideal_ns", Arc::new(rows.iter().map(ideal).collect::<UInt64Array>())),
            ]
        }),
    )
}

/// For each owner the first one of its name.
fn first_of_name(paths: &[String]) -> Vec<usize> {
    let mut first: FxHashMap<&str, usize> = FxHashMap::default();
    paths.iter().enumerate().map(|(i, path)| *first.entry(path.as_str()).or_insert(i)).collect()
}

fn parts(path: &Path, lifetimes: &Lifetimes) -> Result<(), Error> {
    let paths: Vec<String> = lifetimes.owners.iter().map(|o| o.path(&lifetimes.symbols)).collect();
    let same = first_of_name(&paths);
    table(
        path,
        chunks(lifetimes.messages.len()).map(|range| {
            let mut message = UInt32Builder::new();
            let (mut leg_names, mut roles) =
                (StringDictionaryBuilder::<UInt16Type>::new(), StringDictionaryBuilder::<UInt16Type>::new());
            let mut owners = StringDictionaryBuilder::<UInt16Type>::new();
            let (mut ns, mut count) = (UInt64Builder::new(), UInt32Builder::new());
            for m in &lifetimes.messages[range] {
                for leg in LEGS {
                    // Owners that differ in what their names do not say are one row.
                    let mut rows: Vec<(&str, usize, u64, u32)> = Vec::new();
                    for part in lifetimes.part_slice(m.id, leg) {
                        let role = if part.role == Role::R { "R" } else { "A" };
                        let owner = same[part.owner as usize];
                        match rows.iter_mut().find(|(r, o, ..)| (*r, *o) == (role, owner)) {
                            Some((_, _, ns, count)) => {
                                *ns += part.ns;
                                *count = count.saturating_add(u32::from(part.count));
                            }
                            None => rows.push((role, owner, part.ns, u32::from(part.count))),
                        }
                    }
                    for (role, owner, time, begun) in rows {
                        message.append_value(m.id);
                        leg_names.append_value(leg.name());
                        roles.append_value(role);
                        owners.append_value(&paths[owner]);
                        ns.append_value(time);
                        count.append_value(begun);
                    }
                }
            }
            vec![
                ("message", Arc::new(message.finish()) as ArrayRef),
                ("leg", Arc::new(leg_names.finish())),
                ("role", Arc::new(roles.finish())),
                ("owner", Arc::new(owners.finish())),
                ("ns", Arc::new(ns.finish())),
                ("count", Arc::new(count.finish())),
            ]
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timelines::threads::State;
    use arrow_array::cast::AsArray;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use std::fs::File;

    fn golden() -> Lifetimes {
        analysed().lifetimes
    }

    fn analysed() -> Analysis {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/memcached-requests");
        Analysis::of(&mut tailsight_trace::Run::open(Path::new(path)).unwrap()).unwrap()
    }

    fn read(path: &Path) -> Vec<RecordBatch> {
        let file = File::open(path).unwrap();
        ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().map(Result::unwrap).collect()
    }

    fn u64s(batch: &RecordBatch, name: &str) -> Vec<u64> {
        batch.column_by_name(name).unwrap().as_primitive::<arrow_array::types::UInt64Type>().values().to_vec()
    }

    fn u32s(batch: &RecordBatch, name: &str) -> Vec<u32> {
        batch.column_by_name(name).unwrap().as_primitive::<UInt32Type>().values().to_vec()
    }

    #[test]
    fn the_waits_of_a_thread_are_its_sleeping_time() {
        let (dir, analysis) = (tempfile::tempdir().unwrap(), analysed());
        assert_eq!(write_threads(dir.path(), &analysis).unwrap(), ["turns.parquet", "waits.parquet"]);
        let mut written: std::collections::BTreeMap<u32, u64> = Default::default();
        let mut rows = 0;
        for batch in read(&dir.path().join("waits.parquet")) {
            let (tids, from, to) = (u32s(&batch, "tid"), u64s(&batch, "from_ns"), u64s(&batch, "to_ns"));
            (0..batch.num_rows()).for_each(|i| *written.entry(tids[i]).or_default() += to[i] - from[i]);
            rows += batch.num_rows();
        }
        assert!(rows > 100 && written.len() > 1, "{rows} sleeps of {} threads", written.len());
        let (start_ns, end_ns) = analysis.scan.activity.span_ns;
        for (tid, thread) in analysis.scan.activity.threads.all() {
            let ends = thread.intervals.iter().skip(1).map(|next| next.from).chain([end_ns]);
            let asleep = thread.intervals.iter().zip(ends).filter(|(s, _)| matches!(s.state, State::Sleeping { .. }));
            let asleep_ns: u64 = asleep.map(|(s, to)| to - s.from.max(start_ns)).sum();
            assert_eq!(written.get(&tid).copied().unwrap_or(0), asleep_ns, "thread {tid}");
        }
    }

    #[test]
    fn a_message_is_taken_and_answered_in_one_turn_each() {
        let (dir, analysis) = (tempfile::tempdir().unwrap(), analysed());
        write_threads(dir.path(), &analysis).unwrap();
        let (mut took, mut answered): (Vec<u32>, Vec<u32>) = (vec![], vec![]);
        for batch in read(&dir.path().join("turns.parquet")) {
            let (tids, from, to) = (u32s(&batch, "tid"), u64s(&batch, "from_ns"), u64s(&batch, "to_ns"));
            assert!(from.iter().zip(&to).all(|(from, to)| from <= to));
            let next = (1..batch.num_rows()).filter(|&i| tids[i] == tids[i - 1]);
            assert!(next.into_iter().all(|i| to[i - 1] <= from[i]), "turns of a thread overlap");
            for (name, ids) in [("took", &mut took), ("answered", &mut answered)] {
                let lists = batch.column_by_name(name).unwrap().as_list::<i32>();
                ids.extend(lists.values().as_primitive::<UInt32Type>().values());
            }
        }
        let messages = &analysis.lifetimes.messages;
        let ids_where =
            |has: fn(&Message) -> bool| messages.iter().filter(|m| has(m)).map(|m| m.id).collect::<Vec<u32>>();
        took.sort_unstable();
        answered.sort_unstable();
        assert_eq!(took, ids_where(|m| m.recv_ns != 0));
        assert_eq!(answered, ids_where(|m| m.send_ns != 0));
    }

    /// 2,967 rows of a run had the message, leg, role and owner of another one.
    #[test]
    fn a_message_leg_role_and_owner_is_one_row_and_the_rows_still_sum_to_the_leg() {
        let dir = tempfile::tempdir().unwrap();
        let mut lifetimes = golden();
        // Every second owner is called like the one before it.
        for i in (1..lifetimes.owners.len()).step_by(2) {
            lifetimes.owners[i] = lifetimes.owners[i - 1].clone();
        }
        write(dir.path(), &lifetimes, &[]).unwrap();
        let file = File::open(dir.path().join("lifetimes.parquet")).unwrap();
        let (mut keys, mut sums) = (std::collections::HashSet::new(), std::collections::HashMap::new());
        for batch in ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap() {
            let batch = batch.unwrap();
            let text = |name: &str| {
                let column = batch.column_by_name(name).unwrap();
                let column = column.as_dictionary::<UInt16Type>();
                let values = column.values().as_string::<i32>().clone();
                column.keys().iter().map(|k| values.value(usize::from(k.unwrap())).to_owned()).collect::<Vec<_>>()
            };
            let message = batch.column(0).as_primitive::<arrow_array::types::UInt32Type>().values().to_vec();
            let ns =
                batch.column_by_name("ns").unwrap().as_primitive::<arrow_array::types::UInt64Type>().values().to_vec();
            let (leg, role, owner) = (text("leg"), text("role"), text("owner"));
            for i in 0..batch.num_rows() {
                let key = (message[i], leg[i].clone(), role[i].clone(), owner[i].clone());
                assert!(keys.insert(key), "message {} {} {} {} twice", message[i], leg[i], role[i], owner[i]);
                *sums.entry((message[i], leg[i].clone())).or_insert(0) += ns[i];
            }
        }
        assert!(keys.len() > 1000, "{}", keys.len());
        for m in &lifetimes.messages {
            for leg in LEGS {
                let parts: u64 = lifetimes.part_slice(m.id, leg).iter().map(|p| p.ns).sum();
                assert_eq!(sums.get(&(m.id, leg.name().to_owned())).copied().unwrap_or(0), parts, "message {}", m.id);
            }
        }
    }

    #[test]
    fn the_ideal_of_a_message_is_in_its_row_and_null_where_there_is_none() {
        let (dir, lifetimes) = (tempfile::tempdir().unwrap(), golden());
        let n = lifetimes.messages.len();
        let some: Vec<Option<u64>> = (0..n as u64).map(|id| (id % 3 > 0).then_some(1_000 + id)).collect();
        for given in [&some[..], &[]] {
            write(dir.path(), &lifetimes, given).unwrap();
            let file = File::open(dir.path().join("messages.parquet")).unwrap();
            let mut rows = 0;
            for batch in ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap() {
                let batch = batch.unwrap();
                let column = batch.column_by_name("ideal_ns").unwrap();
                for ideal_ns in column.as_primitive::<arrow_array::types::UInt64Type>() {
                    assert_eq!(ideal_ns, given.get(rows).copied().flatten(), "row {rows}");
                    rows += 1;
                }
            }
            assert_eq!(rows, n);
        }
    }

    /// `export` wrote it and did not say so.
    #[test]
    fn what_the_application_asks_of_others_is_a_table_with_its_waits() {
        let (dir, mut lifetimes) = (tempfile::tempdir().unwrap(), golden());
        assert_eq!(write(dir.path(), &lifetimes, &[]).unwrap(), ["messages.parquet", "lifetimes.parquet"]);
        let (kind, sent_ns) = (crate::model::SentKind::Request, 12);
        let request = Sent { kind, flow: 0, bytes: 9, tid: 7, send_ns: 10, sent_ns, xmit_ns: 11, answered_ns: 512 };
        assert_eq!(Sent { answered_ns: 11, ..request }.wait_ns(), Some(0), "answered before its own call had returned");
        lifetimes.sent = vec![request, Sent { answered_ns: 0, ..request }];
        assert_eq!(write(dir.path(), &lifetimes, &[]).unwrap()[2..], ["sent.parquet"]);
        let file = File::open(dir.path().join("sent.parquet")).unwrap();
        let batch = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().next().unwrap().unwrap();
        for (name, first) in [("answered_ns", 512), ("wait_ns", 500)] {
            let column = batch.column_by_name(name).unwrap().as_primitive::<arrow_array::types::UInt64Type>();
            assert_eq!(column.iter().collect::<Vec<_>>(), [Some(first), None], "{name}");
        }
    }

    /// A disk that filled up left half a file, in the place of the whole one of before.
    #[test]
    fn a_table_that_cannot_be_written_leaves_the_one_of_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("messages.parquet");
        std::fs::write(&path, "before").unwrap();
        let columns = |n: u32| vec![("id", Arc::new(UInt32Array::from_iter_values(0..n)) as ArrayRef)];
        let other = dir.path().join("sent.parquet");
        // The second batch has other columns: the writing fails in the middle.
        let broken = || [columns(5), vec![("id", Arc::new(StringArray::from(vec!["x"])) as ArrayRef)]].into_iter();
        assert!(table(&path, broken()).is_err() && table(&other, broken()).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        table(&other, [columns(5)].into_iter()).unwrap();
        assert!(other.exists());
    }
}

//! Every sample of a measurement as Parquet, with the report inside, and back. Times are CLOCK_MONOTONIC ns of the client.
//!
//! Columns: `intended_ns`, `called_ns` (the clock before the send call), `sent_ns`, `received_ns` (kernel stamps where
//! `sent_stamped`, `received_stamped`; the NIC's where `sent_hardware`, `received_hardware`), `response_ns`, `service_ns`, `lateness_ns` (null where the request has none), `status`,
//! `agent`, `connection`, `batch`, `flags` (bits of [`tailsight_load::Sample`]), `shared_ns` (by how much `received_ns` may be too late; absent from older files), `in_result` (what the verdict is about). The report
//! is JSON under the file's key `tailsight`, so one file is the whole result and pandas, DuckDB and polars open it.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, StringArray, UInt16Array, UInt32Array, UInt64Array};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use tailsight_load::{Sample, Status};
use tailsight_output::Whole;

use crate::error::{Cause, Error};
use crate::latencies::{Latencies, latencies};
use crate::measure::{Measurement, Row};
use crate::report::{Report, SCHEMA};

/// Key of the report in the file's metadata.
const KEY: &str = "tailsight";
/// Rows a batch.
const ROWS: usize = 65_536;

/// Writes the samples and the report; what was there stays until the file is whole.
///
/// # Errors
/// [`Error::File`].
pub fn write(measurement: &Measurement, path: &Path) -> Result<(), Error> {
    let put = || -> Result<(), Cause> {
        let agents = &measurement.report.client.agents;
        let mut file = Whole::create(path)?;
        let json = serde_json::to_string(&measurement.report)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
            .set_key_value_metadata(Some(vec![parquet::file::metadata::KeyValue::new(KEY.to_owned(), json)]))
            .build();
        let empty = to_batch(&[], agents)?;
        let mut writer = ArrowWriter::try_new(&mut file, empty.schema(), Some(properties)).map_err(cause)?;
        for rows in measurement.rows.chunks(ROWS) {
            writer.write(&to_batch(rows, agents)?).map_err(cause)?;
        }
        writer.close().map_err(cause)?;
        Ok(file.finish()?)
    };
    put().map_err(|source| Error::File { what: "write", path: path.to_owned(), source })
}

/// The system's error itself: one of Parquet around it would print it a second time.
fn cause(error: ParquetError) -> Cause {
    match error {
        ParquetError::External(inner) => inner,
        other => other.into(),
    }
}

fn to_batch(rows: &[Row], agents: &[String]) -> Result<RecordBatch, Cause> {
    let times =
        |of: fn(&Sample) -> u64| -> ArrayRef { Arc::new(rows.iter().map(|r| of(&r.sample)).collect::<UInt64Array>()) };
    let spans = |of: fn(&Sample) -> Option<u64>| -> ArrayRef {
        Arc::new(rows.iter().map(|r| of(&r.sample)).collect::<UInt64Array>())
    };
    let flag = |bit: u32| -> ArrayRef {
        Arc::new(BooleanArray::from_iter(rows.iter().map(|r| Some(r.sample.flags & bit != 0))))
    };
    let mut status = StringDictionaryBuilder::<Int8Type>::new();
    let mut agent = StringDictionaryBuilder::<Int8Type>::new();
    for row in rows {
        status.append_value(name_of(row.sample.status()));
        agent.append(agents.get(usize::from(row.agent)).map_or("", String::as_str))?;
    }
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("intended_ns", times(|s| s.intended_ns), false),
        ("called_ns", times(|s| s.called_ns), false),
        ("sent_ns", times(|s| s.sent_ns), false),
        ("received_ns", times(|s| s.received_ns), false),
        ("response_ns", spans(Sample::response_ns), true),
        ("service_ns", spans(Sample::service_ns), true),
        ("lateness_ns", spans(Sample::lateness_ns), true),
        ("status", Arc::new(status.finish()), false),
        ("sent_stamped", flag(Sample::SENT_STAMPED), false),
        ("received_stamped", flag(Sample::RECEIVED_STAMPED), false),
        ("sent_hardware", flag(Sample::SENT_HARDWARE), false),
        ("received_hardware", flag(Sample::RECEIVED_HARDWARE), false),
        ("agent", Arc::new(agent.finish()), false),
        ("connection", Arc::new(rows.iter().map(|r| Some(r.sample.connection)).collect::<UInt32Array>()), false),
        ("batch", Arc::new(rows.iter().map(|r| Some(r.batch)).collect::<UInt16Array>()), false),
        ("flags", Arc::new(rows.iter().map(|r| Some(r.sample.flags)).collect::<UInt32Array>()), false),
        ("shared_ns", Arc::new(rows.iter().map(|r| Some(r.sample.shared_ns)).collect::<UInt32Array>()), false),
        ("in_result", Arc::new(BooleanArray::from_iter(rows.iter().map(|r| Some(r.in_result)))), false),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

fn name_of(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Miss => "miss",
        Status::Error => "error",
        Status::Wrong => "wrong",
        Status::Closed => "closed",
        Status::Garbage => "garbage",
        Status::Lost => "lost",
        Status::Unanswered => "unanswered",
    }
}

/// A measurement that was read from a file.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Its report.
    pub report: Report,
    /// Every sample, by due time.
    pub rows: Vec<Row>,
}

impl Stored {
    /// The latencies that its verdict is about, in time order.
    #[must_use]
    pub fn latencies(&self) -> Latencies {
        latencies(&self.rows, self.report.latency)
    }
}

/// Reads a file that [`write`] made.
///
/// # Errors
/// [`Error::File`] when it cannot be read, [`Error::NotSamples`] when it is none of ours.
pub fn read(path: &Path) -> Result<Stored, Error> {
    let fail = |source: Cause| Error::File { what: "read", path: path.to_owned(), source };
    let not_ours = |reason, source| Error::NotSamples { path: path.to_owned(), reason, source };
    let file = File::open(path).map_err(|e| fail(e.into()))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)
        .map_err(|e| not_ours("it is not a Parquet file", Some(cause(e))))?;
    let metadata = builder.metadata().file_metadata().key_value_metadata();
    let json = metadata.and_then(|all| all.iter().find(|kv| kv.key == KEY)).and_then(|kv| kv.value.clone());
    let json = json.ok_or_else(|| not_ours("it has no report", None))?;
    let version: serde_json::Value =
        serde_json::from_str(&json).map_err(|e| not_ours("its report is not JSON", Some(e.into())))?;
    if version["schema"] != SCHEMA {
        return Err(fail(format!("its report has schema {}, this program reads {SCHEMA}", version["schema"]).into()));
    }
    let report: Report =
        serde_json::from_value(version).map_err(|e| not_ours("its report is incomplete", Some(e.into())))?;
    let mut rows = Vec::new();
    for batch in builder.build().map_err(|e| fail(cause(e)))? {
        let batch = batch.map_err(|e| fail(e.into()))?;
        from_batch(&batch, &report.client.agents, &mut rows)
            .ok_or_else(|| not_ours("its columns are not those of a sample file", None))?;
    }
    Ok(Stored { report, rows })
}

fn from_batch(batch: &RecordBatch, agents: &[String], rows: &mut Vec<Row>) -> Option<()> {
    let column = |name: &str| batch.column_by_name(name);
    let u64s = |name: &str| Some(column(name)?.as_any().downcast_ref::<UInt64Array>()?.clone());
    let u32s = |name: &str| Some(column(name)?.as_any().downcast_ref::<UInt32Array>()?.clone());
    let (intended, called, sent, received) =
        (u64s("intended_ns")?, u64s("called_ns")?, u64s("sent_ns")?, u64s("received_ns")?);
    let (connection, flags) = (u32s("connection")?, u32s("flags")?);
    let shared = u32s("shared_ns");
    let number = column("batch")?.as_any().downcast_ref::<UInt16Array>()?;
    let in_result = column("in_result")?.as_any().downcast_ref::<BooleanArray>()?;
    let names = column("agent")?.as_any().downcast_ref::<arrow_array::DictionaryArray<Int8Type>>()?;
    let values = names.values().as_any().downcast_ref::<StringArray>()?;
    for i in 0..batch.num_rows() {
        let name = values.value(names.key(i)?);
        rows.push(Row {
            sample: Sample {
                intended_ns: intended.value(i),
                called_ns: called.value(i),
                sent_ns: sent.value(i),
                received_ns: received.value(i),
                connection: connection.value(i),
                flags: flags.value(i),
                shared_ns: shared.as_ref().map_or(0, |s| s.value(i)),
            },
            agent: agents.iter().position(|a| a == name).unwrap_or(0) as u16,
            batch: number.value(i),
            in_result: in_result.value(i),
        });
    }
    Some(())
}

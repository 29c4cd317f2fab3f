//! Samples written and read back are the same; what is none of ours is refused with a reason.

use proptest::prelude::*;
use tailsight_load::{Plan, Protocol, Sample};
use tailsight_measure::report::{Achieved, Client, Kept, Lateness, Report, SCHEMA, Summary, Verdict};
use tailsight_measure::samples::{read, write};
use tailsight_measure::{Latency, Measurement, Row};

fn measurement(rows: Vec<Row>) -> Measurement {
    let plan = Plan::new("localhost:1".parse().unwrap(), Protocol::Echo);
    let report = Report {
        schema: SCHEMA,
        kind: "measurement".into(),
        version: "0".into(),
        began_s: 1,
        target: plan.target.to_string(),
        protocol: plan.protocol.to_string(),
        latency: Latency::Response,
        verdict: Verdict::Number { percentiles: Vec::new() },
        response_ns: Summary::default(),
        service_ns: Summary::default(),
        lateness_ns: Lateness::default(),
        rate: Achieved::default(),
        leaves_out: None,
        counts: tailsight_load::Counts::default(),
        client: Client { agents: vec!["a".into(), "b".into()], ..Client::default() },
        agents: Vec::new(),
        checks: Vec::new(),
        assumptions: Vec::new(),
        by_agent: Vec::new(),
        machine: tailsight_measure::Machine::default(),
        warm_up_ns: None,
        steps: Vec::new(),
        restarts: Vec::new(),
        complaints: Vec::new(),
        kept: Kept::default(),
        plan,
        against: None,
        objective: None,
    };
    Measurement { report, rows, intervals: Vec::new(), accepted: None, start_ns: 0 }
}

fn row() -> impl Strategy<Value = Row> {
    (any::<[u32; 4]>(), any::<(u32, u32, bool)>(), 0..2_u16, any::<u16>()).prop_map(
        |(t, (connection, flags, in_result), agent, batch)| Row {
            sample: Sample {
                intended_ns: t[0].into(),
                called_ns: t[1].into(),
                sent_ns: t[2].into(),
                received_ns: t[3].into(),
                connection,
                flags,
                shared_ns: connection / 2,
            },
            agent,
            batch,
            in_result,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn a_file_holds_what_was_measured(rows in proptest::collection::vec(row(), 0..300)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        let m = measurement(rows);
        write(&m, &path).unwrap();
        let back = read(&path).unwrap();
        prop_assert_eq!(&back.rows, &m.rows);
        prop_assert_eq!(back.report, m.report);
    }

    #[test]
    fn any_bytes_are_refused_with_a_reason(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let error = read(file.path()).unwrap_err().to_string();
        prop_assert!(error.contains("tailsight load"), "{}", error);
    }
}

#[test]
fn each_row_says_which_of_its_times_are_a_nics() {
    use arrow_array::BooleanArray;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    let flags =
        [0, Sample::SENT_HARDWARE, Sample::RECEIVED_HARDWARE, Sample::SENT_HARDWARE | Sample::RECEIVED_HARDWARE];
    let rows = flags.map(|flags| {
        let sample = Sample { intended_ns: 1, called_ns: 2, sent_ns: 3, received_ns: 4, flags, ..Sample::default() };
        Row { sample, agent: 0, batch: 0, in_result: true }
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    write(&measurement(rows.to_vec()), file.path()).unwrap();
    let mut reader =
        ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(file.path()).unwrap()).unwrap().build().unwrap();
    let batch = reader.next().unwrap().unwrap();
    for (name, expected) in
        [("sent_hardware", [false, true, false, true]), ("received_hardware", [false, false, true, true])]
    {
        let column = batch.column_by_name(name).unwrap().as_any().downcast_ref::<BooleanArray>().unwrap();
        assert_eq!(column, &BooleanArray::from(expected.to_vec()), "{name}");
    }
}

/// This number came back as the one after it, so that a report read from a file was not the one that had been written.
#[test]
fn a_number_is_read_as_it_was_written() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut written = measurement(vec![]);
    written.report.rate.answered = 3.713_860_167_975_748_4e-9;
    write(&written, file.path()).unwrap();
    assert_eq!(read(file.path()).unwrap().report, written.report);
}

/// Regression of the format: a report from before the stamps of NICs is read as one without.
#[test]
fn a_report_without_the_source_of_stamps_is_read() {
    let mut json = serde_json::to_value(measurement(Vec::new()).report).unwrap();
    let client = json["client"].as_object_mut().unwrap();
    for name in ["stamps", "stamps_why", "stamps_hint", "hardware"] {
        assert!(client.remove(name).is_some(), "{name}");
    }
    let report: Report = serde_json::from_value(json).unwrap();
    assert_eq!((report.client.stamps, report.client.hardware), (None, 0.0));
}

#[test]
fn a_missing_file_says_so() {
    let text = "cannot read /nonexistent.parquet: No such file or directory (os error 2)";
    assert_eq!(tailsight_units::chain(&read("/nonexistent.parquet".as_ref()).unwrap_err()), text);
}

/// The writer's own error has the system's in its text and as its source.
#[test]
fn a_full_disk_is_said_once() {
    let error = write(&measurement(vec![]), "/dev/full".as_ref()).unwrap_err();
    assert_eq!(tailsight_units::chain(&error), "cannot write /dev/full: No space left on device (os error 28)");
}

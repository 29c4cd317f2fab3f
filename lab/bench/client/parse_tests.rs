//! Tests of the parsers on real output of each tool (of a busy machine: the latencies are no measurement of anybody).

use super::*;

/// memcaslap 1.0 `-T 1 -c 16 -w 1k -t 4s -S 4s --tps=4k`.
const MEMCASLAP: &str = include_str!("testdata/memcaslap.txt");

/// redis-benchmark 7.0.15 `-t get -c 1 -n 20000 --precision 3`; `^M` stands for its carriage returns.
const REDIS: &str = include_str!("testdata/redis-benchmark.txt");

/// wrk 4.1.0 `-t 1 -c 1 -d 2` with our script.
const WRK: &str = include_str!("testdata/wrk.txt");

/// h2load 1.52.0 `-p http/1.1 -t 1 -c 16 --rps=250 -D 3`, and the begin of its log.
const H2LOAD: &str = include_str!("testdata/h2load.txt");
const H2LOAD_LOG: &str = r#"1795332700134731	200	10621
1795332700134736	200	10658
1795332700134740	200	10657
1795332700134744	200	10656
1795332700134748	200	10654
"#;

/// k6 1.8.1, constant-arrival-rate 2,000/s with 16 users for 3 s: the parts of its summary that are read.
const K6: &str = include_str!("testdata/k6.txt");

/// vegeta 12.13.0 `-rate 2000/1s -duration 2s -workers 16 -max-workers 16`: its report, and the begin of its results as CSV.
const VEGETA: &str = include_str!("testdata/vegeta.txt");
const VEGETA_CSV: &str = r#"1795355908476793952,200,426897,0,0,,,,1,GET,http://127.0.0.1:7801/,Q29udGVudC1MZW5ndGg6IDYNCkNvbnRlbnQtVHlwZTogdGV4dC9wbGFpbg0KDQo=
1795355908476871278,200,544862,0,0,,,,2,GET,http://127.0.0.1:7801/,Q29udGVudC1MZW5ndGg6IDYNCkNvbnRlbnQtVHlwZTogdGV4dC9wbGFpbg0KDQo=
1795355908476504310,200,926612,0,0,,,,0,GET,http://127.0.0.1:7801/,Q29udGVudC1MZW5ndGg6IDYNCkNvbnRlbnQtVHlwZTogdGV4dC9wbGFpbg0KDQo=
"#;

/// oha 1.16.0 `-z 2s -c 16 -q 2000 --latency-correction --output-format json`: the parts that are read.
const OHA: &str = include_str!("testdata/oha.txt");

/// `tailsight load --json` that ended N/A: the parts that are read.
const TAILSIGHT: &str = include_str!("testdata/tailsight.txt");

fn exact(figures: &Figures, which: usize) -> f64 {
    let range = figures.quantiles[which].unwrap();
    assert_eq!(range.low, range.high);
    range.low
}

#[test]
fn memcaslap_keeps_bins() {
    let figures = memcaslap(MEMCASLAP).unwrap();
    assert_eq!((figures.requests, figures.errors, figures.mean_us), (34_509 + 16_384, 0, Some(1862.0)));
    assert!((figures.per_s - 34_509.0 / 4.0).abs() < 1e-9);
    // 31,166 + 404 of 34,493 events: the 17,247th is in bin 10, the 34,149th in bin 13, the 34,459th in bin 14.
    let bins = figures.quantiles.map(|q| q.unwrap().high);
    assert_eq!(bins, [1024.0, 8192.0, 16_384.0, 32_768.0]);
    assert_eq!(figures.quantiles[0].unwrap().low, 512.0);
    assert!(memcaslap(&MEMCASLAP.replace("Total Statistics (", "")).unwrap_err().to_string().contains("-S"));
}

#[test]
fn redis_benchmark_has_some_percentiles_and_bounds_of_others() {
    let figures = redis_benchmark(&REDIS.replace("^M", "\r")).unwrap();
    assert_eq!((figures.requests, figures.per_s, figures.mean_us), (20_000, 1036.05, Some(958.0)));
    assert_eq!((exact(&figures, 0), exact(&figures, 2)), (71.0, 20_127.0));
    let p90 = figures.quantiles[1].unwrap();
    assert!(p90.low >= 183.0 && p90.low < p90.high && p90.high <= 3127.0, "{p90:?}");
    let p99_9 = figures.quantiles[3].unwrap();
    assert_eq!(p99_9.high, 32_079.0);
}

#[test]
fn wrk_says_what_our_script_prints() {
    let figures = wrk(WRK).unwrap();
    assert_eq!((figures.requests, figures.errors), (2647, 0));
    assert_eq!([0, 1, 2, 3].map(|q| exact(&figures, q)), [197.0, 14_620.0, 24_017.0, 31_991.0]);
    assert!((figures.per_s - 1305.67).abs() < 0.01 && figures.mean_us == Some(4545.111));
}

#[test]
fn h2load_counts_and_its_log_has_the_latencies() {
    let figures = h2load(H2LOAD).unwrap();
    assert_eq!((figures.requests, figures.errors, figures.per_s), (11_980, 0, 3993.33));
    assert_eq!(h2load_log(H2LOAD_LOG), [10_621.0, 10_658.0, 10_657.0, 10_656.0, 10_654.0]);
    // A failed stream has no latency.
    assert_eq!(h2load_log("1795332700134731\t-1\t10\nx\n\n1\t200\t7\n"), [7.0]);
}

#[test]
fn k6_counts_what_it_dropped() {
    let figures = k6(K6).unwrap();
    assert_eq!((figures.requests, figures.errors), (5185, 815));
    assert!((figures.per_s - 1724.875).abs() < 0.001);
    assert!((exact(&figures, 2) - 14_003.997).abs() < 0.001);
}

#[test]
fn vegeta_reports_and_its_results_have_the_latencies() {
    let figures = vegeta(VEGETA).unwrap();
    assert_eq!((figures.requests, figures.errors), (3999, 0));
    assert!((figures.per_s - 2000.042).abs() < 0.001 && figures.mean_us == Some(131.495));
    assert_eq!((exact(&figures, 0), exact(&figures, 2), figures.quantiles[3]), (119.966, 317.197, None));
    assert_eq!(vegeta_csv(VEGETA_CSV), [426.897, 544.862, 926.612]);
    // What was refused has no latency, and is an error.
    assert_eq!(vegeta_csv("1,0,5000,0,0,refused\n1,200,7000,0,0,\nx\n"), [7.0]);
    assert_eq!(vegeta(&VEGETA.replace("\"200\":3999", "\"200\":3990,\"503\":9")).unwrap().errors, 9);
}

#[test]
fn oha_counts_what_failed_and_not_what_the_deadline_cut_off() {
    let figures = oha(OHA).unwrap();
    assert_eq!((figures.requests, figures.errors), (3999, 0));
    assert!((figures.per_s - 2000.0).abs() < 20.0, "{}", figures.per_s);
    let refused = OHA.replace("\"errorDistribution\": {", "\"errorDistribution\": {\"connection refused\": 5,");
    assert_eq!(oha(&refused.replace(",}", "}")).unwrap().errors, 5);
}

#[test]
fn tailsight_without_a_number_names_the_check() {
    let figures = tailsight(TAILSIGHT).unwrap();
    assert_eq!((figures.requests, figures.errors), (20_136, 0));
    assert_eq!(figures.verdict, Some(Err("load".to_owned())));
    assert_eq!((figures.late_p50_us, figures.late_p99_us), (Some(0.759), Some(54_525.951)));
    assert!((figures.threads_us.unwrap() - 56.8657).abs() < 0.001);
    let number = r#"{"verdict": {"verdict": "number", "percentiles": [{"lower_ns": 1000.0, "upper_ns": 2500.0}]}"#;
    let number = TAILSIGHT.replacen("{", &format!("{number},"), 1).replacen(
        "\"verdict\": {\n  \"verdict\": \"not-available\"",
        "\"was\": {\n  \"verdict\": \"not-available\"",
        1,
    );
    assert_eq!(tailsight(&number).unwrap().verdict, Some(Ok((1.0, 2.5))));
}

#[test]
fn percentiles_of_a_sample_are_ranks() {
    let (quantiles, mean) = of_sample((1..=1000).rev().map(f64::from).collect());
    assert_eq!(quantiles.map(|q| q.unwrap().low), [500.0, 900.0, 990.0, 999.0]);
    assert_eq!(mean, Some(500.5));
    assert_eq!(of_sample(Vec::new()), ([None; 4], None));
}

#[test]
fn other_output_is_an_error_and_never_a_panic() {
    for text in
        ["", "{}", "[]", "tailsight {}", "finished in , 1 req/s", "Total Statistics (\n Log2 Dist:\n 4: x", "100% <= "]
    {
        let parsed = [
            tailsight(text),
            memcaslap(text),
            redis_benchmark(text),
            wrk(text),
            h2load(text),
            k6(text),
            vegeta(text),
            oha(text),
        ];
        assert!(parsed.iter().all(Result::is_err), "{text:?}");
    }
}

//! Tests of the parsers on real output of each tool (of a busy machine: the latencies are no measurement of anybody).

use super::*;

/// memcaslap 1.0 `-T 1 -c 16 -w 1k -t 4s -S 4s --tps=4k`.
const MEMCASLAP: &str = r#"servers: 127.0.0.1:7001
threads count: 1
concurrency: 16
run time: 4s
windows size: 1k
set proportion: set_prop=0.00
get proportion: get_prop=1.00

Get Statistics
Type     Time(s)  Ops          TPS(ops/s)   Net(M/s)   Get_miss   Min(us)  Max(us)    Avg(us)    Std_dev    Geo_dist  
Period   4        34477        8619         0.4        0          67       245837     1855       5923.39    1013.16
Global   4        34477        8619         0.4        0          67       245837     1855       5923.39    1013.16

Total Statistics
Type     Time(s)  Ops          TPS(ops/s)   Net(M/s)   Get_miss   Min(us)  Max(us)    Avg(us)    Std_dev    Geo_dist  
Period   4        34477        8619         0.4        0          67       245837     1855       5923.39    1013.16
Global   4        34477        8619         0.4        0          67       245837     1855       5923.39    1013.16

Get Statistics (34493 events)
   Min:        67
   Max:    245837
   Avg:      1862
   Geo:   1014.48
   Std:   5930.64
   Log2 Dist:
       4:        0        0        0      273
       8:     1184     3694    18617     3803
      12:     2343     3085     1324      138
      16:       16        0       16

Total Statistics (34493 events)
   Min:        67
   Max:    245837
   Avg:      1862
   Geo:   1014.48
   Std:   5930.64
   Log2 Dist:
       4:        0        0        0      273
       8:     1184     3694    18617     3803
      12:     2343     3085     1324      138
      16:       16        0       16

cmd_get: 34509
cmd_set: 16384
get_misses: 0
written_bytes: 1791038
read_bytes: 2476596
object_bytes: 786432

Run time: 4.0s Ops: 50893 TPS: 12708 Net_rate: 1.0M/s
"#;

/// redis-benchmark 7.0.15 `-t get -c 1 -n 20000 --precision 3`; `^M` stands for its carriage returns.
const REDIS: &str = r#" ^MGET: rps=1125.2 (overall: 1125.2) avg_msec=0.880 (overall: 0.880)^M                                                                  ^M====== GET ======
  20000 requests completed in 19.30 seconds
  1 parallel clients
  3 bytes payload
  keep alive: 1
  host configuration "save":
  host configuration "appendonly":
  multi-thread: no

Latency by percentile distribution:
0.000% <= 0.015 milliseconds (cumulative count 5)
50.000% <= 0.071 milliseconds (cumulative count 10426)
75.000% <= 0.119 milliseconds (cumulative count 15146)
87.500% <= 0.183 milliseconds (cumulative count 17578)
93.750% <= 3.127 milliseconds (cumulative count 18750)
96.875% <= 12.535 milliseconds (cumulative count 19375)
98.438% <= 19.839 milliseconds (cumulative count 19688)
99.219% <= 22.719 milliseconds (cumulative count 19844)
99.609% <= 24.463 milliseconds (cumulative count 19922)
99.805% <= 28.159 milliseconds (cumulative count 19961)
99.902% <= 32.079 milliseconds (cumulative count 19981)
99.951% <= 35.199 milliseconds (cumulative count 19991)
99.976% <= 37.695 milliseconds (cumulative count 19996)
99.988% <= 41.503 milliseconds (cumulative count 19998)
99.994% <= 46.847 milliseconds (cumulative count 19999)
99.997% <= 47.967 milliseconds (cumulative count 20000)
100.000% <= 47.967 milliseconds (cumulative count 20000)

Cumulative distribution of latencies:
70.035% <= 0.103 milliseconds (cumulative count 14007)
89.650% <= 0.207 milliseconds (cumulative count 17930)
92.185% <= 0.303 milliseconds (cumulative count 18437)
92.660% <= 0.407 milliseconds (cumulative count 18532)
92.750% <= 0.503 milliseconds (cumulative count 18550)
92.830% <= 0.607 milliseconds (cumulative count 18566)
92.900% <= 0.703 milliseconds (cumulative count 18580)
92.945% <= 0.807 milliseconds (cumulative count 18589)
92.985% <= 0.903 milliseconds (cumulative count 18597)
93.010% <= 1.007 milliseconds (cumulative count 18602)
93.065% <= 1.103 milliseconds (cumulative count 18613)
93.130% <= 1.207 milliseconds (cumulative count 18626)
93.155% <= 1.303 milliseconds (cumulative count 18631)
93.195% <= 1.407 milliseconds (cumulative count 18639)
93.225% <= 1.503 milliseconds (cumulative count 18645)
93.260% <= 1.607 milliseconds (cumulative count 18652)
93.300% <= 1.703 milliseconds (cumulative count 18660)
93.345% <= 1.807 milliseconds (cumulative count 18669)
93.370% <= 1.903 milliseconds (cumulative count 18674)
93.385% <= 2.007 milliseconds (cumulative count 18677)
93.440% <= 2.103 milliseconds (cumulative count 18688)
93.740% <= 3.103 milliseconds (cumulative count 18748)
94.115% <= 4.103 milliseconds (cumulative count 18823)
94.585% <= 5.103 milliseconds (cumulative count 18917)
94.770% <= 6.103 milliseconds (cumulative count 18954)
94.985% <= 7.103 milliseconds (cumulative count 18997)
95.440% <= 8.103 milliseconds (cumulative count 19088)
95.790% <= 9.103 milliseconds (cumulative count 19158)
96.010% <= 10.103 milliseconds (cumulative count 19202)
96.145% <= 11.103 milliseconds (cumulative count 19229)
96.635% <= 12.103 milliseconds (cumulative count 19327)
96.975% <= 13.103 milliseconds (cumulative count 19395)
97.080% <= 14.103 milliseconds (cumulative count 19416)
97.225% <= 15.103 milliseconds (cumulative count 19445)
97.975% <= 16.103 milliseconds (cumulative count 19595)
98.155% <= 17.103 milliseconds (cumulative count 19631)
98.265% <= 18.111 milliseconds (cumulative count 19653)
98.315% <= 19.103 milliseconds (cumulative count 19663)
98.995% <= 20.111 milliseconds (cumulative count 19799)
99.155% <= 21.103 milliseconds (cumulative count 19831)
99.195% <= 22.111 milliseconds (cumulative count 19839)
99.230% <= 23.103 milliseconds (cumulative count 19846)
99.535% <= 24.111 milliseconds (cumulative count 19907)
99.640% <= 25.103 milliseconds (cumulative count 19928)
99.675% <= 26.111 milliseconds (cumulative count 19935)
99.705% <= 27.103 milliseconds (cumulative count 19941)
99.800% <= 28.111 milliseconds (cumulative count 19960)
99.855% <= 29.103 milliseconds (cumulative count 19971)
99.870% <= 31.103 milliseconds (cumulative count 19974)
99.915% <= 32.111 milliseconds (cumulative count 19983)
99.945% <= 33.119 milliseconds (cumulative count 19989)
99.950% <= 35.103 milliseconds (cumulative count 19990)
99.970% <= 36.127 milliseconds (cumulative count 19994)
99.980% <= 38.111 milliseconds (cumulative count 19996)
99.985% <= 40.127 milliseconds (cumulative count 19997)
99.990% <= 42.111 milliseconds (cumulative count 19998)
99.995% <= 47.103 milliseconds (cumulative count 19999)
100.000% <= 48.127 milliseconds (cumulative count 20000)

Summary:
  throughput summary: 1036.05 requests per second
  latency summary (msec):
          avg       min       p50       p95       p99       max
        0.958     0.008     0.071     7.159    20.127    47.967

"#;

/// wrk 4.1.0 `-t 1 -c 1 -d 2` with our script.
const WRK: &str = r#"Running 2s test @ http://127.0.0.1:7003/
  1 threads and 1 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     4.55ms    6.39ms  33.91ms   83.04%
    Req/Sec     1.33k     1.27k    3.75k    78.95%
  Latency Distribution
     50%  197.00us
     75%    7.82ms
     90%   14.62ms
     99%   24.02ms
  2647 requests in 2.03s, 180.95KB read
Requests/sec:   1305.67
Transfer/sec:     89.25KB
tailsight {"requests":2647,"duration_us":2027313,"errors":0,"mean_us":4545.111,"p50":197,"p90":14620,"p99":24017,"p99.9":31991}
"#;

/// h2load 1.52.0 `-p http/1.1 -t 1 -c 16 --rps=250 -D 3`, and the begin of its log.
const H2LOAD: &str = r#"Main benchmark duration is over for thread #0. Stopping all clients.
Stopped all clients for thread #0

finished in 3.00s, 3993.33 req/s, 272.98KB/s
requests: 11980 total, 11984 started, 11980 done, 11980 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 11980 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 818.95KB (838600) total, 432.91KB (443297) headers (space savings 0.00%), 70.20KB (71886) data
                     min         max         mean         sd        +/- sd
time for request:       25us     40.01ms      3.52ms      5.62ms    86.44%
time for connect:       10us        94us        58us        25us    62.50%
time to 1st byte:    10.64ms     10.72ms     10.70ms        19us    81.25%
req/s           :     249.31      249.66      249.57        0.15    75.00%
"#;
const H2LOAD_LOG: &str = r#"1795332700134731	200	10621
1795332700134736	200	10658
1795332700134740	200	10657
1795332700134744	200	10656
1795332700134748	200	10654
"#;

/// k6 1.8.1, constant-arrival-rate 2,000/s with 16 users for 3 s: the parts of its summary that are read.
const K6: &str = r#"{
 "metrics": {
  "http_req_duration": {
   "p(99)": 14.00399703999999,
   "p(99.9)": 65.42211888800003,
   "avg": 3.4713696902603646,
   "p(50)": 2.334502,
   "p(90)": 8.0876682
  },
  "http_req_failed": {
   "passes": 0,
   "fails": 5185,
   "value": 0
  },
  "http_reqs": {
   "count": 5185,
   "rate": 1724.8751730708063
  },
  "dropped_iterations": {
   "count": 815,
   "rate": 271.12309856368506
  },
  "iterations": {
   "count": 5185,
   "rate": 1724.8751730708063
  },
  "vus_max": {
   "value": 16,
   "min": 16,
   "max": 16
  }
 }
}"#;

/// vegeta 12.13.0 `-rate 2000/1s -duration 2s -workers 16 -max-workers 16`: its report, and the begin of its results as CSV.
const VEGETA: &str = r#"{"latencies":{"total":525850248,"mean":131495,"50th":119966,"90th":171170,"95th":197740,"99th":317197,"max":1525005,"min":77386},"bytes_in":{"total":0,"mean":0},"bytes_out":{"total":0,"mean":0},"earliest":"2026-11-22T13:58:28.47650431Z","latest":"2026-11-22T13:58:30.475849776Z","end":"2026-11-22T13:58:30.475962133Z","duration":1999345466,"wait":112357,"requests":3999,"rate":2000.1545845904352,"throughput":2000.0421884368002,"success":1,"status_codes":{"200":3999},"errors":[]}"#;
const VEGETA_CSV: &str = r#"1795355908476793952,200,426897,0,0,,,,1,GET,http://127.0.0.1:7801/,Q29udGVudC1MZW5ndGg6IDYNCkNvbnRlbnQtVHlwZTogdGV4dC9wbGFpbg0KDQo=
1795355908476871278,200,544862,0,0,,,,2,GET,http://127.0.0.1:7801/,Q29udGVudC1MZW5ndGg6IDYNCkNvbnRlbnQtVHlwZTogdGV4dC9wbGFpbg0KDQo=
1795355908476504310,200,926612,0,0,,,,0,GET,http://127.0.0.1:7801/,Q29udGVudC1MZW5ndGg6IDYNCkNvbnRlbnQtVHlwZTogdGV4dC9wbGFpbg0KDQo=
"#;

/// oha 1.16.0 `-z 2s -c 16 -q 2000 --latency-correction --output-format json`: the parts that are read.
const OHA: &str = r#"{
 "summary": {
  "successRate": 1.0,
  "total": 2.001074625,
  "slowest": 0.000719673,
  "fastest": 7.7245e-05,
  "average": 0.00013781864191047763,
  "requestsPerSec": 1998.4262206113376,
  "totalData": 23994,
  "sizePerRequest": 6,
  "sizePerSec": 11990.557323668025
 },
 "latencyPercentiles": {
  "p10": 9.352e-05,
  "p25": 0.000107931,
  "p50": 0.000140009,
  "p75": 0.000151566,
  "p90": 0.000180889,
  "p95": 0.00021442,
  "p99": 0.000252066,
  "p99.9": 0.000592433,
  "p99.99": 0.000719673
 },
 "statusCodeDistribution": {
  "200": 3999
 },
 "errorDistribution": {}
}"#;

/// `tailsight load --json` that ended N/A: the parts that are read.
const TAILSIGHT: &str = r#"{
 "schema": 1,
 "verdict": {
  "verdict": "not-available",
  "failed": {
   "id": "load",
   "test": "relative error of the mean rates (sent against asked, answered against sent) beyond counting noise",
   "subject": "this host",
   "passed": false,
   "statistic": 0.0770451488156692,
   "threshold": 0.02,
   "threshold_is_p": false,
   "p_value": null,
   "n": 3537
  },
  "reason": "the time allowed ran out before a number could be believed; so far, the asked load was not reached and kept (this host)",
  "hint": "allow more with --max-time, or: lower the rate, or add connections, threads or agents until the client can send it"
 },
 "response_ns": {
  "n": 0,
  "mean": null,
  "max": null,
  "percentiles": {
   "p50": null,
   "p90": null,
   "p99": null,
   "p99.9": null
  }
 },
 "lateness_ns": {
  "n": 20136,
  "p50": 759,
  "p99": 54525951,
  "p99.9": 76546047,
  "max": 80821221
 },
 "rate": {
  "asked": 4000.0,
  "sent": 4001.8489259677617,
  "answered": 3998.0188267539097
 },
 "counts": {
  "intended": 20136,
  "sent": 20136,
  "unsent": 0,
  "ok": 20136,
  "miss": 0,
  "error": 0,
  "wrong": 0,
  "closed": 0,
  "garbage": 0,
  "lost": 0,
  "unanswered": 0,
  "blocked": 0,
  "unasked": 0,
  "reconnects": 0
 },
 "client": {
  "agents": [
   "this host"
  ],
  "threads": 1,
  "cpu_ns": 1145046945,
  "cpu_ns_per_request": 56865.660756853395,
  "busiest_thread": 0.2276114594599003,
  "starved_thread": 0.09406973092823381,
  "stamped": 0.0,
  "clock_error_ns": 20
 }
}"#;

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
        let all = [
            tailsight(text),
            memcaslap(text),
            redis_benchmark(text),
            wrk(text),
            h2load(text),
            k6(text),
            vegeta(text),
            oha(text),
        ];
        assert!(all.iter().all(Result::is_err), "{text:?}");
    }
}

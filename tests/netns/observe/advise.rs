//! `pillion advise`, and its estimates compared with measurements.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use std::{env, thread};

use pillion_bpf::host::interruption::retry;
use pillion_lab::path::{Direction, Loss, PathConfig};
use pillion_tests::HostPair;
use serde_json::Value;

use super::{
    interval, json, path_str, send, send_every, send_with, start, stop, stop_unless_finished,
};
use crate::common::*;

#[test]
fn advice_reflects_losses_and_bundles_nothing() {
    needs_root!();
    let pair = lossy_pair(0.05);
    let folder = tempfile::tempdir().unwrap();
    let [stats, rules, page] =
        ["stats", "rules.toml", "page.html"].map(|it| folder.path().join(it));
    let advise = [
        ["advise", "--json"],
        ["--stats", path_str(&stats)],
        ["--write-config", path_str(&rules)],
        ["--html", path_str(&page)],
    ];
    let advise = start(&pair, advise.as_flattened());
    send(&pair, 7001, "10", "6");
    let report = json(&stop(advise));

    let advice = &report["advice"][0];
    assert_eq!(advice["service"]["remote"], 7001, "{report:#}");
    assert_eq!(advice["guessed"], false);
    assert_eq!(advice["process"], "pillion-lab");
    assert_eq!(
        (&advice["connections"], &advice["finding"]),
        (&10.into(), &"bundle".into())
    );
    let (low, high) = interval(&advice["loss"]);
    // One interval in twenty misses the true value, but not by much.
    assert!(0.02 < low && low < high && high < 0.1, "{advice:#}");
    assert!(interval(&advice["repairable"]).0 > 0.6, "{advice:#}");
    assert!(interval(&advice["time_saved_ms"]).0 > 0.0, "{advice:#}");
    // After losses, the congestion window delays data in the socket.
    assert!(advice["unsent_byte_us"].as_u64() > Some(0), "{advice:#}");

    let stats = read_json(&stats);
    assert_eq!(stats["redundant_bytes"], 0);
    assert!(stats["outcomes"]["bundled"].is_null());
    assert!(stats["outcomes"]["suppressed"].as_u64().unwrap() > 1000);

    let check = ["attach", "--config", path_str(&rules), "--check-config"];
    let checked = pillion(&check);
    assert!(checked.status.success(), "{}", stderr(&checked));
    let rules = std::fs::read_to_string(rules).unwrap();
    assert!(rules.contains("remote-port = [7001]"), "{rules}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Advice") && page.contains("<svg"));
}

#[test]
fn no_losses_give_no_advice() {
    needs_root!();
    let pair = clean_pair();
    let advise = start(&pair, &["advise"]);
    send(&pair, 7001, "3", "2");
    let report = stdout(&stop(advise));
    assert!(report.contains("too few losses (0 in"), "{report}");
    assert!(report.contains("no rules"), "{report}");
}

#[test]
fn waits_for_nagle_advise_nodelay() {
    needs_root!();
    let itt = ["--itt", "13ms"];
    for (options, reported) in [(&["--nagle"][..], true), (&[], false)] {
        let pair = clean_pair();
        let advise = start(&pair, &["advise"]);
        send_with(&pair, &[options, &itt].concat(), 7001, "5", "5");
        let report = stdout(&stop(advise));
        assert_eq!(report.contains("--nodelay"), reported, "{report}");
    }
}

/// Creates two hosts with 1 ms each way and these shares of loss.
fn short_pair(forward: f64, backward: f64) -> HostPair {
    let direction = |loss| Direction {
        loss: Loss::Uniform(loss),
        ..Direction::delayed(Duration::from_millis(1))
    };
    HostPair::create(&PathConfig {
        forward: direction(forward),
        backward: direction(backward),
        seed: 1,
    })
}

#[test]
fn lost_acks_count_as_needless_for_smaller_rto_min() {
    needs_root!();
    // After a lost ACK, the next one arrives 100 ms later.
    let pair = short_pair(0.0, 0.1);
    let advise = start(&pair, &["advise", "--json"]);
    send_with(&pair, &["--itt", "100ms"], 7001, "10", "10");
    let report = json(&stop(advise));
    let advice = &report["advice"][0];
    let count = |key: &str| advice[key].as_u64().unwrap();
    let expected = count("segments") / 50..count("segments") / 4;
    assert!(
        expected.contains(&count("rto_min_20_needless")),
        "{advice:#}"
    );
    assert!(count("rto_min_80_needless") <= count("rto_min_20_needless"));
    assert!(advice["rto_min"].is_null(), "{advice:#}");
}

#[test]
fn timeouts_of_requests_advise_rto_min() {
    needs_root!();
    for (loss, advised) in [(0.03, true), (0.0, false)] {
        let pair = short_pair(loss, 0.0);
        let folder = tempfile::tempdir().unwrap();
        let rules = folder.path().join("rules.toml");
        // Level auto would copy the requests.
        let advise = ["advise", "--json", "--max-packets", "1"];
        let advise = [&advise[..], &["--write-config", path_str(&rules)]].concat();
        let advise = start(&pair, &advise);
        let requests = ["--kind", "request-response", "--think", "5ms"];
        send_with(&pair, &requests, 7001, "10", "10");
        let report = json(&stop(advise));
        let advice = &report["advice"][0];
        assert_eq!(rules.exists(), advised, "{report:#}");
        if !advised {
            assert!(advice["rto_min"].is_null(), "{advice:#}");
            continue;
        }
        let rto_min = &advice["rto_min"];
        assert!(rto_min["min_ms"].as_u64() <= Some(40), "{advice:#}");
        let value = |key: &str| rto_min[key]["value"].as_f64().unwrap();
        // Time-outs of 200 ms and more after 3 % of the requests.
        assert!((3.0..20.0).contains(&value("timer_ms")), "{advice:#}");
        assert!(value("saved_ms") > value("timer_ms") / 2.0, "{advice:#}");
        let rules = std::fs::read_to_string(rules).unwrap();
        assert!(rules.contains("rto-min = ") && rules.contains("mode = \"tcp-options\""));
    }
}

#[test]
fn isolated_messages_are_bundled_only_if_level_copies_them() {
    needs_root!();
    for (options, advised) in [(&[][..], true), (&["--max-packets", "1"], false)] {
        let pair = short_pair(0.03, 0.0);
        let advise = start(&pair, &[&["advise"], options].concat());
        // Time-outs take 200 ms.
        send_with(&pair, &["--itt", "300ms"], 7001, "40", "10");
        let report = stdout(&stop(advise));
        let bundle = "bundle it: bundles and copies would have repaired ";
        assert_eq!(report.contains(bundle), advised, "{report}");
        let not = "so nothing could have been bundled; level auto, the default, copies such messages \
                   more than 105 ms apart";
        assert_eq!(!report.contains(not), advised, "{report}");
    }
}

#[test]
fn service_of_older_connections_is_marked_as_guess() {
    needs_root!();
    let pair = clean_pair();
    let report = thread::scope(|scope| {
        let sending = scope.spawn(|| send(&pair, 7001, "2", "12"));
        await_listening(&pair.receiver.namespace, 7001);
        thread::sleep(Duration::from_secs(1));
        let advise = start(&pair, &["advise", "--json"]);
        sending.join().unwrap();
        json(&stop(advise))
    });
    let advice = &report["advice"][0];
    assert_eq!(advice["service"]["remote"], 7001, "{report:#}");
    assert_eq!(advice["guessed"], true);
}

/// Opens `lasting` long connections, and short ones for some seconds. Returns the total number.
fn open_connections(lasting: usize) -> usize {
    const LONG_LIVED: &[u8] = b"l";
    let listener = TcpListener::bind("127.0.0.1:7001").unwrap();
    let accepting = thread::spawn(move || {
        let mut long_lived = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            let mut byte = [0];
            match retry(|| stream.read(&mut byte)).unwrap() {
                0 => return,
                _ if byte == LONG_LIVED => long_lived.push(stream),
                _ => {}
            }
        }
    });
    let connect = || TcpStream::connect("127.0.0.1:7001").unwrap();
    let connect_and_send = |message: &[u8]| {
        let mut stream = connect();
        stream.write_all(message).unwrap();
        stream
    };
    let mut long_lived: Vec<_> = (0..lasting).map(|_| connect_and_send(LONG_LIVED)).collect();
    let started = Instant::now();
    let mut short_lived = 0;
    while started.elapsed() < Duration::from_secs(5) {
        let mut stream = connect_and_send(b"s");
        // It may be reset, because the peer does not read it.
        let _ = retry(|| stream.read(&mut [0]));
        short_lived += 1;
        thread::sleep(Duration::from_millis(2));
    }
    long_lived
        .iter_mut()
        .for_each(|it| it.write_all(LONG_LIVED).unwrap());
    thread::sleep(Duration::from_secs(3));
    drop(connect());
    accepting.join().unwrap();
    lasting + short_lived
}

#[test]
fn long_connection_is_counted_once_among_short_ones() {
    needs_root!();
    let pair = clean_pair();
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats");
    let advise = [
        "advise",
        "--json",
        "--dev",
        "lo",
        "--stats",
        path_str(&stats),
    ];
    let child = start(&pair, &advise);
    let connections = pair
        .sender
        .namespace
        .enter(|| open_connections(300))
        .unwrap();
    let report = json(&stop(child));
    assert_eq!(report["connections"], connections);
    let stats: Value = serde_json::from_slice(&std::fs::read(&stats).unwrap()).unwrap();
    assert_eq!(stats["unobserved"], 0);
}

#[test]
fn unwritable_rules_are_printed() {
    needs_root!();
    let pair = lossy_pair(0.05);
    let folder = tempfile::tempdir().unwrap();
    let subfolder = folder.path().join("there");
    std::fs::create_dir(&subfolder).unwrap();
    let file = subfolder.join("rules.toml");
    let advise = start(&pair, &["advise", "--write-config", path_str(&file)]);
    std::fs::remove_dir(&subfolder).unwrap();
    send(&pair, 7001, "10", "6");
    let output = stop_unless_finished(advise);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains(path_str(&file)),
        "{}",
        stderr(&output)
    );
    let report = stdout(&output);
    assert!(report.contains("remote-port = [7001]"), "{report}");
}

#[test]
fn existing_file_stays_if_nothing_to_write() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let folder = tempfile::tempdir().unwrap();
    let [mine, none] = ["mine.toml", "none.html"].map(|name| folder.path().join(name));
    std::fs::write(&mine, "mine").unwrap();
    let files = ["--write-config", mine.to_str().unwrap()];
    for (options, code) in [
        (&["--duration", "1s", "--dev", "lo"][..], 0),
        (&["--netns", "nosuch", "--html", none.to_str().unwrap()], 2),
    ] {
        let arguments = [&["advise"], options, &files].concat();
        let output = pillion_in(&namespace, &arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let unchanged = format!("{} unchanged\n", mine.display());
        assert_eq!(stdout(&output).contains(&unchanged), code == 0);
        assert_eq!(std::fs::read_to_string(&mine).unwrap(), "mine");
    }
    assert!(!none.exists());
}

#[test]
fn missing_sack_is_reported_as_reason() {
    needs_root!();
    let pair = lossy_pair(0.05);
    let receiver = &pair.receiver.namespace;
    let off = receiver
        .command("sysctl")
        .args(["-qw", "net.ipv4.tcp_sack=0"])
        .status();
    assert!(off.unwrap().success());
    let advise = start(&pair, &["advise", "--json"]);
    send(&pair, 7001, "10", "4");
    let report = json(&stop(advise));
    assert_eq!(report["advice"][0]["finding"], "no-sack", "{report:#}");
}

/// Environment variable: seconds of traffic on each path. By default one path is used for some
/// seconds.
const SECONDS: &str = "PILLION_ADVICE";

/// Path and traffic of one comparison.
struct Scenario {
    name: &'static str,
    loss: Loss,
    /// Time between two messages of a stream, in milliseconds.
    itt: &'static str,
}

/// Returns the scenarios: independent losses, and bursts of two packets on average.
fn scenarios() -> Vec<Scenario> {
    let scenario = |name, loss, itt| Scenario { name, loss, itt };
    let bursts = Loss::GilbertElliott {
        to_bad: 0.025,
        to_good: 0.5,
        in_bad: 1.0,
        in_good: 0.0,
    };
    vec![
        scenario("5 %", Loss::Uniform(0.05), "20"),
        scenario("1 %", Loss::Uniform(0.01), "20"),
        scenario("1 %", Loss::Uniform(0.01), "50"),
        scenario("5 %", Loss::Uniform(0.05), "50"),
        scenario("5 %", Loss::Uniform(0.05), "150"),
        scenario("5 %, in bursts", bursts, "50"),
    ]
}

impl Scenario {
    fn pair(&self, seed: u64) -> HostPair {
        let direction = |loss| Direction {
            loss,
            ..Direction::delayed(Duration::from_millis(50))
        };
        HostPair::create(&PathConfig {
            forward: direction(self.loss.clone()),
            backward: direction(Loss::Uniform(0.0)),
            seed,
        })
    }

    /// Observes twenty streams over a new path with a command. Returns its report.
    fn observe(&self, seed: u64, command: &[&str], seconds: &str) -> Value {
        let pair = self.pair(seed);
        let child = start(&pair, command);
        send_every(&pair, self.itt, 7001, "20", seconds);
        json(&stop(child))
    }

    /// Measures the average wait of a segment beyond the minimum RTT, in milliseconds: without
    /// bundles, the predicted saving, and with bundles.
    fn measure(&self, seconds: &str) -> WaitTimes {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("record");
        // With nearly all connections bundled there is no comparison, so the trial never stops by
        // itself.
        let trial = ["trial", "--json", "--state", path_str(&state)];
        let trial = [
            &trial[..],
            &["--share", "99.95%", "--assign-by", "connection"],
        ]
        .concat();
        let mean_wait_ms = |of: &Value| {
            let sums = ["waited_byte_us", "unsent_byte_us", "new_bytes"];
            let [waited, unsent, bytes] = sums.map(|it| of[it].as_f64().unwrap());
            (waited + unsent) / bytes / 1e3
        };
        thread::scope(|scope| {
            let bundled = scope.spawn(|| self.observe(2, &trial, seconds));
            let advised = self.observe(1, &["advise", "--json"], seconds);
            let advice = &advised["advice"][0];
            WaitTimes {
                plain: mean_wait_ms(advice),
                predicted: interval(&advice["time_saved_ms"]),
                bundled: mean_wait_ms(&bundled.join().unwrap()["bundled"]),
            }
        })
    }
}

struct WaitTimes {
    plain: f64,
    predicted: (f64, f64),
    bundled: f64,
}

#[test]
fn predicted_saving_matches_measured_saving() {
    needs_root!();
    let seconds = env::var(SECONDS).ok();
    let scenarios = scenarios();
    let scenarios = match seconds {
        Some(_) => &scenarios[..],
        None => &scenarios[..1],
    };
    println!("loss             ITT    wait: plain  bundled    saved  predicted");
    for scenario in scenarios {
        let WaitTimes {
            plain,
            predicted: (low, high),
            bundled,
        } = scenario.measure(seconds.as_deref().unwrap_or("12"));
        let saved = plain - bundled;
        println!(
            "{:<15} {:>4} {plain:>14.1} {bundled:>8.1} {saved:>8.1}  {low:.1} to {high:.1} ms",
            scenario.name, scenario.itt
        );
        // Both are measured on different streams.
        let plausible = low * 0.5 - 1.0..high * 1.5 + 1.0;
        assert!(
            plausible.contains(&saved),
            "{}, {} ms",
            scenario.name,
            scenario.itt
        );
    }
}

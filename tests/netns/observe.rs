//! `pillion advise` and `pillion trial` on real streams.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_path::{Direction, Loss, PathConfig};
use pillion_tests::HostPair;
use serde_json::Value;

use crate::common::*;

/// Streams of small messages to a port, one each 20 ms; the receiver verifies every byte.
fn send(pair: &HostPair, port: u16, streams: &str, seconds: &str) {
    let address = format!("10.77.0.2:{port}");
    let receive = [
        "traffic",
        "receive",
        "--listen",
        &address,
        "--streams",
        streams,
    ];
    let mut receiver = quiet(pillion_in(&pair.receiver.namespace, &receive));
    await_listening(&pair.receiver.namespace, port);
    let send = [
        ["traffic", "send"],
        ["--to", &address],
        ["--streams", streams],
        ["--itt", "20"],
        ["--duration", seconds],
    ];
    let mut sender = quiet(pillion_in(&pair.sender.namespace, send.as_flattened()));
    assert!(sender.wait().unwrap().success());
    assert!(receiver.wait().unwrap().success());
}

fn quiet(mut command: std::process::Command) -> Child {
    let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
    silent.spawn().unwrap()
}

/// The command, at work on the sender's host.
fn begin(pair: &HostPair, arguments: &[&str]) -> Child {
    let mut command = pillion_in(&pair.sender.namespace, arguments);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    await_attached(child.id());
    child
}

/// What it says when it is told to end.
fn end(child: Child) -> Output {
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

/// The same of a trial, which may have ended by itself.
fn end_unless_over(child: Child) -> Output {
    let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
    child.wait_with_output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap_or_else(|why| panic!("{why}: {}", stderr(output)))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn advice_follows_from_what_was_lost_and_nothing_is_bundled() {
    needs_root!();
    let pair = lossy_pair(0.05);
    let folder = tempfile::tempdir().unwrap();
    let [stats, rules, page] =
        ["stats", "rules.toml", "page.html"].map(|it| folder.path().join(it));
    let advise = [
        ["advise", "--json"],
        ["--stats", text(&stats)],
        ["--write-config", text(&rules)],
        ["--html", text(&page)],
    ];
    let advise = begin(&pair, advise.as_flattened());
    send(&pair, 7001, "10", "6");
    let said = json(&end(advise));

    let advice = &said["advice"][0];
    assert_eq!(advice["service"]["remote"], 7001, "{said:#}");
    assert_eq!(advice["process"], "pillion");
    assert_eq!(
        (&advice["connections"], &advice["finding"]),
        (&10.into(), &"bundle".into())
    );
    let (low, high) = interval(&advice["loss"]);
    // The truth lies outside of one interval in twenty, but not far.
    assert!(0.02 < low && low < high && high < 0.1, "{advice:#}");
    assert!(interval(&advice["repairable"]).0 > 0.6, "{advice:#}");
    assert!(interval(&advice["saved_ms"]).0 > 0.0, "{advice:#}");

    let stats = read_json(&stats);
    assert_eq!(stats["redundant_bytes"], 0);
    assert!(stats["outcomes"]["bundled"].is_null());
    assert!(stats["outcomes"]["held_back"].as_u64().unwrap() > 1000);

    let check = ["attach", "--config", text(&rules), "--check-config"];
    let checked = pillion(&check);
    assert!(checked.status.success(), "{}", stderr(&checked));
    let rules = std::fs::read_to_string(rules).unwrap();
    assert!(rules.contains("remote-ports = [7001]"), "{rules}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("What to do") && page.contains("<svg"));
}

fn interval(estimate: &Value) -> (f64, f64) {
    let ends = &estimate["interval"];
    let end = |at: usize| ends[at].as_f64().unwrap_or_else(|| panic!("{estimate}"));
    (end(0), end(1))
}

#[test]
fn without_losses_no_advice_is_given() {
    needs_root!();
    let pair = clean_pair();
    let advise = begin(&pair, &["advise"]);
    send(&pair, 7001, "3", "2");
    let said = stdout(&end(advise));
    assert!(said.contains("too few losses to say (0 in"), "{said}");
    assert!(said.contains("no rules"), "{said}");
}

/// A trial in which each connection is drawn for itself.
fn trial(record: &Path) -> [&str; 8] {
    [
        "trial",
        "--json",
        "--record",
        text(record),
        "--draw-by",
        "connection",
        "--grace",
        "30",
    ]
}

#[test]
fn a_trial_ends_by_itself_once_it_is_clear_that_bundling_helps() {
    needs_root!();
    let pair = lossy_pair(0.08);
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record");
    let trial = trial(&record);
    let mut going = begin(&pair, &trial);
    send(&pair, 7001, "40", "10");
    eventually("it ends", || going.try_wait().unwrap().is_some());
    let said = json(&going.wait_with_output().unwrap());
    assert_eq!(said["verdict"], "helps", "{said:#}");
    assert!(said["bundled"]["units"].as_u64().unwrap() > 5);
    assert!(said["bundled"]["hidden_losses"].as_u64().unwrap() > 0);
    assert_eq!(said["plain"]["redundant_bytes"], 0);
    let (low, high) = interval(&said["measures"][0]["difference"]);
    assert!(low < high && high < 0.0, "{said:#}");

    let again = pillion_in(&pair.sender.namespace, &trial).output().unwrap();
    assert!(
        stderr(&again).contains("this trial is over"),
        "{}",
        stderr(&again)
    );
    assert_eq!(json(&again)["verdict"], "helps");
}

#[test]
fn a_trial_goes_on_from_its_record() {
    needs_root!();
    let pair = clean_pair();
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record");
    let trial = ["trial", "--json", "--record", text(&record)];
    let first = begin(&pair, &trial);
    let beside = pillion_in(&pair.sender.namespace, &trial).output().unwrap();
    assert_eq!(beside.status.code(), Some(2), "{}", stderr(&beside));
    assert!(
        stderr(&beside).contains("in another process"),
        "{}",
        stderr(&beside)
    );
    send(&pair, 7001, "3", "2");
    let first = json(&end(first));
    let units = |said: &Value| {
        said["bundled"]["units"].as_u64().unwrap() + said["plain"]["units"].as_u64().unwrap()
    };
    assert_eq!(units(&first), 1, "one peer: {first:#}");

    let second = begin(&pair, &trial);
    send(&pair, 7001, "2", "1");
    let output = end(second);
    assert!(
        stderr(&output).contains("going on with the trial"),
        "{}",
        stderr(&output)
    );
    let second = json(&output);
    assert_eq!(units(&second), 1, "{second:#}");
    let connections = |said: &Value| {
        let of = |arm: &str| said[arm]["connections"].as_u64().unwrap();
        [of("bundled"), of("plain")]
    };
    // In the same arm.
    let (before, after) = (connections(&first), connections(&second));
    let expected = [[[3, 0], [5, 0]], [[0, 3], [0, 5]]];
    let counted = [before, after];
    assert!(
        expected.contains(&counted),
        "{counted:?}\n{first:#}\n{second:#}"
    );

    for (other, differs) in [
        (["--share", "30%"], "--share"),
        (["--port", "7001"], "connections"),
        (["--dev", "lo"], "devices"),
        (["--netns", "/proc/self/ns/net"], "network namespaces"),
    ] {
        // Were it not refused, it would go on.
        let other = [&trial[..], &other, &["--duration", "1"]].concat();
        let refused = pillion_in(&pair.sender.namespace, &other).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        assert!(stderr(&refused).contains(differs), "{}", stderr(&refused));
    }
}

/// Connections that last, and others that come and go beside them for some seconds; how many there
/// were in all.
fn come_and_go(lasting: usize) -> usize {
    const LASTS: &[u8] = b"l";
    let listener = TcpListener::bind("127.0.0.1:7001").unwrap();
    let accepting = thread::spawn(move || {
        let mut kept = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            let mut says = [0];
            match stream.read(&mut says).unwrap() {
                0 => return,
                _ if says == LASTS => kept.push(stream),
                _ => {}
            }
        }
    });
    let connect = || TcpStream::connect("127.0.0.1:7001").unwrap();
    let connect_and_say = |what: &[u8]| {
        let mut stream = connect();
        stream.write_all(what).unwrap();
        stream
    };
    let mut kept: Vec<_> = (0..lasting).map(|_| connect_and_say(LASTS)).collect();
    let begun = Instant::now();
    let mut gone = 0;
    while begun.elapsed() < Duration::from_secs(5) {
        let mut stream = connect_and_say(b"s");
        // It may be reset, for nobody reads it.
        let _ = stream.read(&mut [0]);
        gone += 1;
        thread::sleep(Duration::from_millis(2));
    }
    kept.iter_mut().for_each(|it| it.write_all(LASTS).unwrap());
    thread::sleep(Duration::from_secs(3));
    drop(connect());
    accepting.join().unwrap();
    lasting + gone
}

#[test]
fn a_connection_that_lasts_is_one_while_others_come_and_go() {
    needs_root!();
    let pair = clean_pair();
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats");
    let advise = ["advise", "--json", "--dev", "lo", "--stats", text(&stats)];
    let going = begin(&pair, &advise);
    let connections = pair.sender.namespace.enter(|| come_and_go(300)).unwrap();
    let said = json(&end(going));
    assert_eq!(said["connections"], connections);
    let stats: Value = serde_json::from_slice(&std::fs::read(&stats).unwrap()).unwrap();
    assert_eq!(stats["unobserved"], 0);
}

#[test]
fn what_was_found_is_told_though_a_file_cannot_be_written() {
    needs_root!();
    let pair = clean_pair();
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("there");
    let file = there.join("file");
    let record = folder.path().join("record");
    for command in [&["advise"][..], &["trial", "--record", text(&record)]] {
        for option in ["--stats", "--html"] {
            std::fs::create_dir(&there).unwrap();
            let going = begin(&pair, &[command, &["--json", option, text(&file)]].concat());
            std::fs::remove_dir_all(&there).unwrap();
            let output = end_unless_over(going);
            assert_eq!(output.status.code(), Some(1), "{command:?} {option}");
            assert!(stderr(&output).contains(text(&file)), "{}", stderr(&output));
            assert!(json(&output).is_object());
        }
    }
}

#[test]
fn rules_that_cannot_be_written_are_printed() {
    needs_root!();
    let pair = lossy_pair(0.05);
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("there");
    std::fs::create_dir(&there).unwrap();
    let file = there.join("rules.toml");
    let advise = begin(&pair, &["advise", "--write-config", text(&file)]);
    std::fs::remove_dir(&there).unwrap();
    send(&pair, 7001, "10", "6");
    let output = end_unless_over(advise);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(text(&file)), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.contains("remote-ports = [7001]"), "{said}");
}

#[test]
fn a_report_is_written_though_nothing_can_be_printed() {
    needs_root!();
    let pair = clean_pair();
    let folder = tempfile::tempdir().unwrap();
    let [page, record] = ["page.html", "record"].map(|it| folder.path().join(it));
    for command in [&["advise"][..], &["trial", "--record", text(&record)]] {
        let arguments = [command, &["--duration", "1", "--html", text(&page)]].concat();
        let mut command = pillion_in(&pair.sender.namespace, &arguments);
        let full = std::fs::File::create("/dev/full").unwrap();
        let output = command.stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let error = stderr(&output);
        assert!(error.contains("write to standard output"), "{error}");
        std::fs::remove_file(&page).unwrap();
    }
}

/// Trials to play of each kind; without, one.
const TRIALS: &str = "PILLION_TRIALS";
/// Which leaves a machine of two cores idle for the most part.
const TRIALS_AT_ONCE: usize = 4;

#[test]
fn a_trial_goes_on_while_its_record_cannot_be_written() {
    needs_root!();
    let pair = clean_pair();
    let folder = tempfile::tempdir().unwrap();
    let [there, away] = ["there", "away"].map(|it| folder.path().join(it));
    std::fs::create_dir(&there).unwrap();
    let record = there.join("trial.json");
    let trial = ["trial", "--json", "--record", text(&record)];
    let mut going = begin(&pair, &trial);
    std::fs::rename(&there, &away).unwrap();
    let mut says = BufReader::new(going.stderr.take().unwrap()).lines();
    let refused = says.find_map(|line| {
        let line = line.unwrap();
        line.contains("trial.json").then_some(line)
    });
    let refused = refused.expect("a line about the record");
    assert!(
        refused.ends_with("the trial goes on, trying again"),
        "{refused}"
    );
    std::fs::rename(&away, &there).unwrap();
    end(going);

    let going = begin(&pair, &trial);
    std::fs::rename(&there, &away).unwrap();
    let output = end_unless_over(going);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("trial.json"),
        "{}",
        stderr(&output)
    );
    assert_eq!(json(&output)["verdict"], "undecided");
}

/// What a trial says of streams over a path that loses one packet in twelve.
fn verdict(seed: u64, options: &[&str]) -> String {
    let direction = |loss| Direction {
        loss: Loss::Uniform(loss),
        ..Direction::delayed(Duration::from_millis(20))
    };
    let pair = HostPair::create(&PathConfig {
        forward: direction(0.08),
        backward: direction(0.0),
        seed,
    });
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record");
    let trial = trial(&record);
    let trial = begin(&pair, &[&trial[..], options].concat());
    send(&pair, 7001, "30", "12");
    json(&end_unless_over(trial))["verdict"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn verdicts_are_right_as_often_as_is_said() {
    needs_root!();
    let trials = std::env::var(TRIALS).map_or(1, |given| given.parse().expect(TRIALS));
    // Thin is what has nothing in flight: nothing is bundled in either arm.
    let of_both = |seed| {
        let is_wrong = verdict(seed, &["--thin", "dpifl:60000"]) != "undecided";
        [is_wrong, verdict(seed, &[]) == "helps"].map(u64::from)
    };
    let (mut wrong, mut found) = (0, 0);
    let seeds: Vec<u64> = (1..=trials).collect();
    for at_once in seeds.chunks(TRIALS_AT_ONCE) {
        let told: Vec<[u64; 2]> = thread::scope(|scope| {
            let played = at_once.iter().map(|seed| scope.spawn(|| of_both(*seed)));
            let played: Vec<_> = played.collect();
            played.into_iter().map(|it| it.join().unwrap()).collect()
        });
        wrong += told.iter().map(|it| it[0]).sum::<u64>();
        found += told.iter().map(|it| it[1]).sum::<u64>();
        let last = at_once[at_once.len() - 1];
        println!("{last} trials of each kind: {wrong} wrong, {found} found");
    }
    // One in twenty, and what chance may add to that.
    let most = trials as f64 / 20.0 + 3.0 * (trials as f64 * 0.05 * 0.95).sqrt();
    assert!(wrong as f64 <= most.max(1.0), "{wrong} of {trials}");
    assert!(found * 10 >= trials * 9, "{found} of {trials}");
}

#[test]
fn what_cannot_be_observed_is_said_in_a_line() {
    needs_root!();
    for (arguments, expected) in [
        (&["trial", "--share", "100"][..], "0.05 to 99.95"),
        (&["trial", "--share", "0.049%"], "0.05 to 99.95"),
        (&["trial", "--every", "0"], "--quiet"),
        (&["advise", "--nodelay"], "leave out the companions"),
        (&["advise", "--grace", "4000000"], "at most an hour"),
    ] {
        let output = pillion(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn a_file_that_is_there_stays_where_there_is_nothing_to_write() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let folder = tempfile::tempdir().unwrap();
    let [mine, none] = ["mine.toml", "none.html"].map(|name| folder.path().join(name));
    std::fs::write(&mine, "mine").unwrap();
    let files = ["--write-config", mine.to_str().unwrap()];
    for (options, code) in [
        (&["--duration", "1", "--dev", "lo"][..], 0),
        (&["--netns", "nosuch", "--html", none.to_str().unwrap()], 2),
    ] {
        let arguments = [&["advise"], options, &files].concat();
        let output = pillion_in(&namespace, &arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let as_it_was = format!("{} is as it was\n", mine.display());
        assert_eq!(stdout(&output).contains(&as_it_was), code == 0);
        assert_eq!(std::fs::read_to_string(&mine).unwrap(), "mine");
    }
    assert!(!none.exists());
}

#[test]
fn why_nothing_could_have_been_bundled_is_told_as_it_was() {
    needs_root!();
    let pair = lossy_pair(0.05);
    let receiver = &pair.receiver.namespace;
    let off = receiver
        .command("sysctl")
        .args(["-qw", "net.ipv4.tcp_sack=0"])
        .status();
    assert!(off.unwrap().success());
    let advise = begin(&pair, &["advise", "--json"]);
    send(&pair, 7001, "10", "4");
    let said = json(&end(advise));
    assert_eq!(said["advice"][0]["finding"], "no-sack", "{said:#}");
}

#[test]
fn another_pillion_that_bundles_there_is_told_of() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let attached = crate::service::Attached::begin(&namespace, &["--dev", "lo"]);
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record.json");
    let trial = [
        "trial",
        "--duration",
        "1",
        "--dev",
        "lo",
        "--record",
        text(&record),
    ];
    let output = pillion_in(&namespace, &trial).output().unwrap();
    let other = format!("process {} is bundling here as well", attached.process());
    let said = stderr(&output);
    assert_eq!(said.matches(&other).count(), 2, "{said}");
    attached.end();
}

//! `pillion advise`, and its estimates compared with measurements.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use pillion_bpf::host::interruption::retry;
use serde_json::Value;

use super::{begin, end, end_unless_over, interval, json, send, text};
use crate::common::*;

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

#[test]
fn the_service_of_connections_older_than_the_watch_is_called_a_guess() {
    needs_root!();
    let pair = clean_pair();
    let said = thread::scope(|scope| {
        let sending = scope.spawn(|| send(&pair, 7001, "2", "12"));
        await_listening(&pair.receiver.namespace, 7001);
        thread::sleep(Duration::from_secs(1));
        let advise = begin(&pair, &["advise", "--json"]);
        sending.join().unwrap();
        json(&end(advise))
    });
    let advice = &said["advice"][0];
    assert_eq!(advice["service"]["remote"], 7001, "{said:#}");
    assert_eq!(advice["guessed"], true);
}

/// Opens `lasting` long connections, and short ones for some seconds. Returns the total number.
fn come_and_go(lasting: usize) -> usize {
    const LASTS: &[u8] = b"l";
    let listener = TcpListener::bind("127.0.0.1:7001").unwrap();
    let accepting = thread::spawn(move || {
        let mut kept = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            let mut says = [0];
            match retry(|| stream.read(&mut says)).unwrap() {
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
        // It may be reset, because the peer does not read it.
        let _ = retry(|| stream.read(&mut [0]));
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

use std::fs;

use crate::settings::time_text::parse_time_distribution;
use crate::traffic::{Distribution, Kind, RampUp};

use super::*;

/// Reads a file with this text. Mistakes are returned as lines without the file's name.
fn read_text(text: &str) -> Result<GroupFile, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mix.toml");
    fs::write(&file, text).unwrap();
    load(&file).map_err(|BadInput(mistakes)| {
        let name = format!("{}:", file.display());
        let lines = mistakes.lines();
        lines.map(|line| line.replace(&name, "")).collect()
    })
}

fn mistakes(text: &str) -> Vec<String> {
    read_text(text).expect_err("there are mistakes")
}

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab/");

#[test]
fn documented_group_file_is_read() {
    let text = fs::read_to_string(format!("{DOCS}mix.toml")).unwrap();
    let file = read_text(&text).unwrap();
    assert_eq!(
        (file.duration, file.seed),
        (Some(Duration::from_secs(60)), 7)
    );
    let [
        players,
        sensors,
        voice,
        terminals,
        download,
        pages,
        session,
        flood,
    ] = &file.groups[..]
    else {
        panic!("{file:?}")
    };
    let sizes = |text| Distribution::parse(text).unwrap();
    let times = |text| parse_time_distribution(text).unwrap();
    let ms = Duration::from_millis;
    assert_eq!((&players.name[..], players.streams), ("anarchy-online", 20));
    assert!(matches!(
        &players.kind,
        Kind::Thin {
            itt: Distribution::Table(_),
            size: Distribution::Table(_)
        }
    ));
    assert_eq!(players.socket.congestion.as_deref(), Some("cubic"));
    let (itt, size) = (times("exponential:500ms"), sizes("lognormal:90:30"));
    assert_eq!(sensors.kind, Kind::Thin { itt, size });
    let (mean, sd) = (ms(25), ms(5));
    assert_eq!(sensors.ramp_up, RampUp::Normal { mean, sd });
    let socket = &sensors.socket;
    assert!(socket.linear_timeouts && !socket.nagle);
    assert_eq!((socket.pillion, socket.max_packets), (Some(true), Some(2)));
    let (itt, size) = (ms(20), 160);
    assert_eq!(voice.kind, Kind::Isochronous { itt, size });
    assert_eq!((voice.streams, &voice.name[..]), (4, "voice"));
    let (think, size) = (times("pareto:300ms:1.5"), sizes("60"));
    let answer = 80;
    let kind = Kind::RequestResponse {
        think,
        size,
        answer,
    };
    assert_eq!(
        (&terminals.kind, terminals.messages, terminals.socket.nagle),
        (&kind, Some(100), true)
    );
    assert_eq!(download.kind, Kind::Greedy { write: 65_536 });
    assert_eq!((download.start, download.streams), (ms(20_000), 1));
    assert_eq!(download.duration, Some(ms(10_000)));
    assert_eq!(download.socket.congestion.as_deref(), Some("reno"));
    assert!(
        matches!(&pages.kind, Kind::Flow { arrival, .. } if *arrival == times("exponential:100ms"))
    );
    assert!(matches!(&session.kind, Kind::Replay { writes, .. } if writes.len() == 3));
    let (size, rate) = (1472, 2_500_000);
    assert_eq!(flood.kind, Kind::Datagrams { size, rate });
    assert_eq!(flood.socket.congestion, None);
}

#[test]
fn every_group_key_is_documented() {
    let example = fs::read_to_string(format!("{DOCS}mix.toml")).unwrap();
    let manual = fs::read_to_string(format!("{DOCS}traffic.md")).unwrap();
    for key in keys::<Group>().iter().map(String::as_str).chain(["seed"]) {
        assert!(example.contains(&format!("\n{key} = ")), "{key}");
        assert!(manual.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn group_file_mistakes_have_position_and_remedy() {
    let text = "\
duration = -1
seed = \"one\"
[defaults]
start = 1
itt = \"weibull:3\"
[[group]]
kind = \"thick\"
streams = 0
think = 5
[[group]]
kind = \"greedy\"
itt = 100
response-size = 4
pillion = true
[[group]]
kind = \"greedy\"
response-size = 4
[[group]]
kind = \"greedy\"
size = \"exponential:100\"
[[group]]
profile = \"nope\"
[[group]]
size = 0
messages = 0
start = \"soon\"
color = 3
[other]
";
    let expected = [
        "1:12: `-1`; expected seconds, as in 0.5",
        "2:8: `one`; expected a number from 0 to 4294967295",
        "4:1: unknown key `start`; known: streams, kind, ",
        "5:7: invalid distribution of times `weibull:3`: expected 30ms",
        "7:8: `thick`; expected \"thin\" or \"isochronous\" or ",
        "8:11: `0`; expected a whole number of at least 1",
        "12:7: `itt` applies to `kind` thin or isochronous or burst or flow, not to greedy; remove it",
        "14:11: `true`; expected \"on\" or \"off\"",
        "17:17: `response-size` applies to `kind` request-response, not to greedy; remove it",
        "20:8: `size` must be fixed for this kind; give a single number",
        "22:11: unknown profile `nope`; known: anarchy-online, ",
        "24:8: invalid mean 0: expected a number above 0",
        "25:12: `0`; expected a whole number of at least 1",
        "26:9: `soon`; expected seconds, as in 0.5",
        "27:1: unknown key `color`; known: name, start, duration, streams, ",
        "28:2: unknown key `other`; known: duration, seed, [defaults]",
    ];
    let found = mistakes(text);
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn group_file_is_checked_as_whole() {
    let text = "\
duration = 10
[[group]]
start = 10
[[group]]
streams = 50
ramp-up = 1000
[[group]]
size = 2000000
[[group]]
profile = \"anarchy-online\"
kind = \"thin\"
[[group]]
streams = 65000
ramp-up = 0
[[group]]
streams = 600
";
    let expected = [
        "3:9: invalid start 10s: the end is at 10s; start earlier",
        "6:11: ramp-up 1s: the last of 50 streams would start after the end at 10s; shorten",
        "8:8: invalid message size 2000000 B: expected 1 to 1048576 B",
        "11:8: `kind` contradicts `profile`, which sets it; remove one",
        "16:11: invalid number of streams 65652: expected 1 to 65535",
    ];
    let found = mistakes(text);
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn group_without_end_is_rejected() {
    let found = mistakes("[[group]]\nduration = 1\n[[group]]\nmessages = 5\n[[group]]\n");
    assert_eq!(
        found,
        ["5:1: endless traffic: set a duration, or the number of messages per stream"]
    );
}

#[test]
fn inapplicable_defaults_are_ignored() {
    let text = "\
duration = 1
[defaults]
kind = \"request-response\"
think = 7
size = 100
[[group]]
[[group]]
kind = \"greedy\"
[[group]]
profile = \"anarchy-online\"
";
    let file = read_text(text).unwrap();
    let kinds: Vec<_> = file.groups.iter().map(|group| group.kind.name()).collect();
    assert_eq!(kinds, ["request-response", "greedy", "thin"]);
    assert_eq!(file.groups[1].kind, Kind::Greedy { write: 100 });
}

#[test]
fn file_without_groups_is_rejected() {
    assert_eq!(
        mistakes("duration = 1\n"),
        ["1:1: missing group; start one with [[group]]"]
    );
    assert_eq!(
        mistakes("[group]\n"),
        ["1:2: expected a list of tables; start each group with [[group]]"]
    );
    let broken = &mistakes("[[group]]\nitt = = 1\n")[0];
    assert!(broken.starts_with("2:7: "), "{broken}");
    assert!(broken.contains("traffic.md"));
}

#[test]
fn flow_uses_itt_and_rejects_ramp_up() {
    let flows = "duration = 1\n[defaults]\nramp-up = 5\n[[group]]\nkind = \"flow\"\n";
    let file = read_text(&format!("{flows}itt = \"exponential:20ms\"\nsize = 1448")).unwrap();
    let arrival = parse_time_distribution("exponential:20ms").unwrap();
    let size = Distribution::constant(1448.0);
    assert_eq!(file.groups[0].kind, Kind::Flow { arrival, size });
    let error = mistakes(&format!("{flows}ramp-up = 5"));
    assert_eq!(error.len(), 1, "{error:?}");
    assert!(
        error[0].contains("`ramp-up` applies to `kind` thin"),
        "{error:?}"
    );
}

#[test]
fn writes_are_read_from_file_or_list() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("writes.csv");
    fs::write(&file, "gap_ms,size\n12.5,120\n30,80\n").unwrap();
    let replay = "duration = 1\n[[group]]\nkind = \"replay\"\n";
    let of = |writes: &str| read_text(&format!("{replay}writes = \"{writes}\"\n"));
    let file = of(&format!("file:{}", file.display())).unwrap();
    let Kind::Replay { writes, .. } = &file.groups[0].kind else {
        panic!("{file:?}")
    };
    let each: Vec<_> = writes
        .iter()
        .map(|it| (it.gap.as_micros(), it.size))
        .collect();
    assert_eq!(each, [(12_500, 120), (30_000, 80)]);
    assert_eq!(of("list:12.5ms=120,30ms=80"), Ok(file));
    let error = |text| of(text).unwrap_err().join("\n");
    assert!(error("list:12.5ms").contains("invalid writes"));
    assert!(error("list:1ms=0").contains("invalid writes"));
    assert!(error("file:/none.csv").contains("/none.csv"));
    let without = mistakes(replay).join("\n");
    assert!(without.contains("needs `writes`"), "{without}");
    let sized = mistakes(&format!("{replay}size = 5\nwrites = \"list:1ms=1\"")).join("\n");
    assert!(sized.contains("`size` applies to"), "{sized}");
}

#[test]
fn datagrams_need_rate_and_reject_tcp_keys() {
    let of = |keys: &str| format!("duration = 1\n[[group]]\nkind = \"datagrams\"\n{keys}");
    let error = |keys: &str| mistakes(&of(keys)).join("\n");
    let without = error("");
    assert!(
        without.contains("needs a rate: `rate = 20` (Mbit/s)"),
        "{without}"
    );
    let congestion = error("rate = 1\ncongestion = \"reno\"");
    assert!(
        congestion.contains("`congestion` applies to `kind` thin"),
        "{congestion}"
    );
    let small = error("rate = 1\nsize = 43");
    assert!(small.contains("43 B: expected 44 to 65507 B"), "{small}");
    let fast = error("rate = 1000000");
    assert!(fast.contains("expected at most one per us"), "{fast}");
}

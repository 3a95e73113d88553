use std::fs;

use crate::traffic::{Distribution, Kind, RampUp};

use super::*;

/// Reads a file with this text; on mistakes, gives their lines without the file's name.
fn read_text(text: &str) -> Result<Mix, Vec<String>> {
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

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/");

#[test]
fn the_example_is_read_as_it_says() {
    let text = fs::read_to_string(format!("{DOCS}mix.toml")).unwrap();
    let mix = read_text(&text).unwrap();
    assert_eq!((mix.duration, mix.seed), (Some(Duration::from_secs(60)), 7));
    let [
        players,
        sensors,
        voice,
        terminals,
        download,
        pages,
        session,
        flood,
    ] = &mix.groups[..]
    else {
        panic!("{mix:?}")
    };
    let drawn = |text| Distribution::parse(text).unwrap();
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
    let (itt, size) = (drawn("exponential:500"), drawn("lognormal:90:30"));
    assert_eq!(sensors.kind, Kind::Thin { itt, size });
    let (mean, sd) = (ms(25), ms(5));
    assert_eq!(sensors.ramp_up, RampUp::Normal { mean, sd });
    let socket = &sensors.socket;
    assert!(socket.linear_timeouts && !socket.nagle);
    assert_eq!((socket.pillion, socket.max_packets), (Some(true), Some(2)));
    let (itt, size) = (ms(20), 160);
    assert_eq!(voice.kind, Kind::Isochronous { itt, size });
    assert_eq!((voice.streams, &voice.name[..]), (4, "voice"));
    let (think, size) = (drawn("pareto:300:1.5"), drawn("60"));
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
        matches!(&pages.kind, Kind::Flow { arrival, .. } if *arrival == drawn("exponential:100"))
    );
    assert!(matches!(&session.kind, Kind::Replay { writes, .. } if writes.len() == 3));
    let (size, rate) = (1472, 2_500_000);
    assert_eq!(flood.kind, Kind::Datagrams { size, rate });
    assert_eq!(flood.socket.congestion, None);
}

#[test]
fn every_key_is_in_the_example_and_in_the_manual() {
    let example = fs::read_to_string(format!("{DOCS}mix.toml")).unwrap();
    let manual = fs::read_to_string(format!("{DOCS}traffic.md")).unwrap();
    for key in keys::<Group>().iter().map(String::as_str).chain(["seed"]) {
        assert!(example.contains(&format!("\n{key} = ")), "{key}");
        assert!(manual.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn every_mistake_is_told_with_its_place_and_a_remedy() {
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
answer = 4
pillion = true
[[group]]
kind = \"greedy\"
answer = 4
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
        "5:7: `weibull:3` is no distribution; give MEAN",
        "7:8: `thick`; expected \"thin\" or \"isochronous\" or ",
        "8:11: `0`; expected a whole number from 1 on",
        "12:7: `itt` goes with `kind` thin or isochronous or burst or flow and not with greedy; leave it out",
        "14:11: `true`; expected \"on\" or \"off\"",
        "17:10: `answer` goes with `kind` request-response and not with greedy; leave it out",
        "20:8: `size`: this kind has a fixed one; give a single number",
        "22:11: no profile `nope`; there are: anarchy-online, ",
        "24:8: mean 0: give one above 0",
        "25:12: `0`; expected a whole number from 1 on",
        "26:9: `soon`; expected seconds, as in 0.5",
        "27:1: unknown key `color`; known: name, start, duration, streams, ",
        "28:2: unknown key `other`; a file has the keys `duration` and `seed`, ",
    ];
    let found = mistakes(text);
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn what_the_groups_make_together_is_looked_at_too() {
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
        "3:9: start 10s: the end is at 10s; start earlier",
        "6:11: ramp-up 1s: the last of 50 streams would start after the end at 10s; shorten",
        "8:8: message size 2000000 B: give 1 to 1048576 B",
        "11:8: `kind` beside `profile`, which says it; leave one out",
        "16:11: 65652 streams: give 1 to 65535",
    ];
    let found = mistakes(text);
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn a_group_ends_by_the_file_or_by_itself() {
    let found = mistakes("[[group]]\nduration = 1\n[[group]]\nmessages = 5\n[[group]]\n");
    assert_eq!(
        found,
        ["5:1: without an end: give a duration, or how many messages each stream sends"]
    );
}

#[test]
fn a_default_that_says_nothing_of_a_groups_kind_is_left_out() {
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
    let mix = read_text(text).unwrap();
    let kinds: Vec<_> = mix.groups.iter().map(|group| group.kind.name()).collect();
    assert_eq!(kinds, ["request-response", "greedy", "thin"]);
    assert_eq!(mix.groups[1].kind, Kind::Greedy { write: 100 });
}

#[test]
fn a_file_without_groups_is_a_mistake() {
    assert_eq!(
        mistakes("duration = 1\n"),
        ["1:1: no group; begin one with [[group]]"]
    );
    assert_eq!(
        mistakes("[group]\n"),
        ["1:2: `group` is no list of tables; begin each group with [[group]]"]
    );
    let broken = &mistakes("[[group]]\nitt = = 1\n")[0];
    assert!(broken.starts_with("2:7: no TOML: "), "{broken}");
    assert!(broken.ends_with("docs/traffic.md has an example of every key"));
}

#[test]
fn a_flow_s_arrivals_are_its_itt_and_it_has_no_ramp_up() {
    let flows = "duration = 1\n[defaults]\nramp-up = 5\n[[group]]\nkind = \"flow\"\n";
    let mix = read_text(&format!("{flows}itt = \"exponential:20\"\nsize = 1448")).unwrap();
    let [arrival, size] = ["exponential:20", "1448"].map(|it| Distribution::parse(it).unwrap());
    assert_eq!(mix.groups[0].kind, Kind::Flow { arrival, size });
    let told = mistakes(&format!("{flows}ramp-up = 5"));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("`ramp-up` goes with `kind` thin"),
        "{told:?}"
    );
}

#[test]
fn a_list_of_writes_is_replayed_from_a_file_or_as_it_stands() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("writes.csv");
    fs::write(&file, "gap_ms,size\n12.5,120\n30,80\n").unwrap();
    let replay = "duration = 1\n[[group]]\nkind = \"replay\"\n";
    let of = |writes: &str| read_text(&format!("{replay}writes = \"{writes}\"\n"));
    let mix = of(&format!("file:{}", file.display())).unwrap();
    let Kind::Replay { writes, .. } = &mix.groups[0].kind else {
        panic!("{mix:?}")
    };
    let each: Vec<_> = writes
        .iter()
        .map(|it| (it.gap.as_micros(), it.size))
        .collect();
    assert_eq!(each, [(12_500, 120), (30_000, 80)]);
    assert_eq!(of("list:12.5=120,30=80"), Ok(mix));
    let told = |text| of(text).unwrap_err().join("\n");
    assert!(told("list:12.5").contains("no list of writes"));
    assert!(told("list:1=0").contains("no list of writes"));
    assert!(told("file:/none.csv").contains("/none.csv"));
    let without = mistakes(replay).join("\n");
    assert!(without.contains("without `writes`"), "{without}");
    let sized = mistakes(&format!("{replay}size = 5\nwrites = \"list:1=1\"")).join("\n");
    assert!(sized.contains("`size` goes with"), "{sized}");
}

#[test]
fn datagrams_have_a_rate_and_nothing_of_tcp() {
    let of = |keys: &str| format!("duration = 1\n[[group]]\nkind = \"datagrams\"\n{keys}");
    let told = |keys: &str| mistakes(&of(keys)).join("\n");
    let without = told("");
    assert!(without.contains("without `rate`; give Mbit/s"), "{without}");
    let congestion = told("rate = 1\ncongestion = \"reno\"");
    assert!(
        congestion.contains("`congestion` goes with `kind` thin"),
        "{congestion}"
    );
    let small = told("rate = 1\nsize = 43");
    assert!(small.contains("43 B: give 44 to 65507 B"), "{small}");
    let fast = told("rate = 1000000");
    assert!(fast.contains("give at least 1 us for each"), "{fast}");
}

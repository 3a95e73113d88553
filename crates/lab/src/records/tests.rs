use std::fs;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Record {
    at_ns: u64,
    peer: SocketAddr,
    state: State,
    rtt_us: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    FinWait1,
}

fn records() -> [Record; 2] {
    let record = Record {
        at_ns: 1 << 60,
        peer: "[2001:db8::1]:7001".parse().unwrap(),
        state: State::FinWait1,
        rtt_us: Some(75_012.345),
    };
    let unknown = Record {
        rtt_us: None,
        ..record.clone()
    };
    [record, unknown]
}

fn written(path: &Path) -> Vec<u8> {
    let mut file = Writer::create(path).unwrap();
    file.write(records()).unwrap();
    file.write(records()).unwrap();
    file.finish().unwrap();
    fs::read(path).unwrap()
}

fn read_all(path: &Path) -> Result<Vec<Record>, ReadError> {
    read(path)?.collect()
}

#[test]
fn records_survive_a_file_plain_and_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let [plain, compressed] = ["a.csv", "a.csv.zst"].map(|name| folder.path().join(name));
    let text = written(&plain);
    assert_eq!(zstd::decode_all(&written(&compressed)[..]).unwrap(), text);
    let expected = [records(), records()].concat();
    assert_eq!(read_all(&plain).unwrap(), expected);
    assert_eq!(read_all(&compressed).unwrap(), expected);
}

#[test]
fn columns_are_the_fields_of_json() {
    let folder = tempfile::tempdir().unwrap();
    let text = String::from_utf8(written(&folder.path().join("a.csv"))).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 5, "{text}");
    for (record, line) in records().iter().zip(&lines[1..]) {
        let json = serde_json::to_value(record).unwrap();
        assert_eq!(lines[0].len(), json.as_object().unwrap().len());
        for (name, value) in lines[0].iter().zip(line) {
            let expected = match &json[*name] {
                serde_json::Value::Null => String::new(),
                serde_json::Value::String(text) => text.clone(),
                number => number.to_string(),
            };
            assert_eq!(*value, expected, "{name}");
        }
    }
}

#[test]
fn what_cannot_be_read_is_named_with_its_line_and_ends_the_reading() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    let good = "at_ns,peer,state,rtt_us\n1,10.0.0.1:1,fin-wait1,2\n";
    for (text, expected) in [
        ("none", None),
        ("stream,size\n1,2\n", Some("line 2: missing field `at_ns`")),
    ] {
        fs::write(&path, text).unwrap();
        let error = read_all(&path).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), expected, "{text}");
    }
    fs::write(&path, format!("{good}x,10.0.0.1:1,fin-wait1,2\n{good}")).unwrap();
    let all: Vec<Result<Record, _>> = read(&path).unwrap().collect();
    assert_eq!(all.len(), 2);
    let error = all[1].as_ref().unwrap_err().to_string();
    assert_eq!(error, "line 3: field 0: invalid digit found in string");

    let path = folder.path().join("a.csv.zst");
    let whole = written(&path);
    fs::write(&path, &whole[..whole.len() - 8]).unwrap();
    assert!(matches!(read_all(&path), Err(ReadError::Cut)));
    fs::write(&path, good).unwrap();
    assert!(matches!(read_all(&path), Err(ReadError::Io(_))));
    assert!(read_all(&folder.path().join("b")).is_err());
}

#[test]
fn a_file_stays_as_it_is_until_the_one_that_replaces_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.csv", "a.csv.zst"] {
        let path = folder.path().join(name);
        let old = written(&path);
        let begun = || {
            let mut new = Writer::replacing(&path).unwrap();
            new.write([&records()[0]]).unwrap();
            assert_eq!(fs::read(&path).unwrap(), old);
            new
        };
        drop(begun());
        assert_eq!(fs::read(&path).unwrap(), old);
        begun().finish().unwrap();
        assert_eq!(read_all(&path).unwrap(), records()[..1]);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn what_has_no_lines_is_refused_before_it_fills_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let [plain, compressed] = ["a.csv", "a.csv.zst"].map(|name| folder.path().join(name));
    let zeros = vec![0; 8 << 20];
    fs::write(&plain, &zeros).unwrap();
    fs::write(&compressed, zstd::encode_all(&zeros[..], 1).unwrap()).unwrap();
    for path in [plain, compressed] {
        let error = read_all(&path).unwrap_err().to_string();
        assert_eq!(error, "a line is longer than 1 MiB, as no record is");
    }
}

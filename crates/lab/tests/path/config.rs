//! What a configuration accepts, and how it is written.

use std::time::Duration;

use pillion_lab::path::{Direction, Disorder, Loss, Own, PathConfig};
use serde_json::json;

fn config() -> PathConfig {
    let direction = Direction {
        rate_bps: Some(1_000_000),
        queue_packets: 30,
        loss: Loss::Uniform(0.05),
        ..Direction::delayed(Duration::from_millis(75))
    };
    PathConfig {
        forward: direction.clone(),
        backward: direction,
        seed: 1,
    }
}

fn complaint(change: impl FnOnce(&mut PathConfig)) -> String {
    let mut config = config();
    change(&mut config);
    config.validate().unwrap_err().to_string()
}

#[test]
fn the_bounds_of_every_range_are_valid() {
    let mut config = config();
    config.forward.loss = Loss::Uniform(0.0);
    config.backward.loss = Loss::Uniform(1.0);
    config.forward.delay = Duration::ZERO;
    config.backward.delay = Duration::from_secs(60);
    config.forward.rate_bps = Some(1);
    config.backward.rate_bps = None;
    config.forward.queue_packets = 1;
    config.backward.queue_packets = 65_536;
    config.validate().unwrap();
}

#[test]
fn an_error_names_the_field_its_value_and_the_range() {
    assert_eq!(
        complaint(|config| config.forward.loss = Loss::Uniform(1.5)),
        "path: forward.loss is 1.5; it must be 0 to 1"
    );
    assert_eq!(
        complaint(|config| config.backward.queue_packets = 0),
        "path: backward.queue_packets is 0; it must be 1 to 65536"
    );
    assert_eq!(
        complaint(|config| config.backward.rate_bps = Some(0)),
        "path: backward.rate_bps is 0; it must be at least 1, or absent"
    );
    assert_eq!(
        complaint(|config| config.forward.delay = Duration::MAX / 2),
        format!(
            "path: forward.delay is {:?}; it must be 0 to 60 s",
            Duration::MAX / 2
        )
    );
}

#[test]
fn a_loss_that_is_no_number_is_refused() {
    let complaint =
        |loss| complaint(|config: &mut PathConfig| config.forward.loss = Loss::Uniform(loss));
    assert!(complaint(f64::NAN).contains("forward.loss is NaN"));
    assert!(complaint(-0.01).contains("-0.01"));
}

#[test]
fn what_disturbs_the_order_is_checked_as_well() {
    let disturbed = |reorder, duplicate, late| {
        let disorder = Disorder {
            reorder,
            duplicate,
            late,
        };
        move |config: &mut PathConfig| config.backward.disorder = Some(disorder)
    };
    let late = Duration::from_millis(5);
    assert_eq!(
        complaint(disturbed(-0.5, 0.0, late)),
        "path: backward.disorder.reorder is -0.5; it must be 0 to 1"
    );
    assert_eq!(
        complaint(disturbed(0.5, 0.75, late)),
        "path: backward.disorder.duplicate is 0.75; it must be 0 to 1, and with reorder at most 1"
    );
    assert!(complaint(disturbed(0.0, f64::NAN, late)).contains("duplicate is NaN"));
    assert!(complaint(disturbed(0.0, 0.0, Duration::MAX)).contains("backward.disorder.late"));
    let mut config = config();
    disturbed(0.5, 0.5, late)(&mut config);
    config.validate().unwrap();
    let written = serde_json::to_value(&config).unwrap();
    assert_eq!(
        written["backward"]["disorder"],
        json!({ "reorder": 0.5, "duplicate": 0.5, "late_ms": 5.0 })
    );
    assert_eq!(
        serde_json::from_value::<PathConfig>(written).unwrap(),
        config
    );
}

#[test]
fn losses_in_runs_and_of_a_list_are_checked_and_written_as_they_are() {
    let losing = |loss: Loss| move |config: &mut PathConfig| config.forward.loss = loss;
    let runs = |to_good| Loss::GilbertElliott {
        to_bad: 0.01,
        to_good,
        in_bad: 1.0,
        in_good: 0.0,
    };
    assert_eq!(
        complaint(losing(runs(1.25))),
        "path: forward.loss.to_good is 1.25; it must be 0 to 1"
    );
    assert_eq!(
        complaint(losing(Loss::Listed(vec![1, 0]))),
        "path: forward.loss is 0; it must be numbers of packets, from 1"
    );
    for (loss, written) in [
        (
            runs(0.25),
            json!({ "to_bad": 0.01, "to_good": 0.25, "in_bad": 1.0, "in_good": 0.0 }),
        ),
        (Loss::Listed(vec![10, 11]), json!([10, 11])),
    ] {
        assert_eq!(serde_json::to_value(&loss).unwrap(), written);
        assert_eq!(serde_json::from_value::<Loss>(written).unwrap(), loss);
        let mut config = config();
        losing(loss)(&mut config);
        config.validate().unwrap();
    }
}

#[test]
fn jitter_and_delays_of_single_ports_are_checked_and_written_in_milliseconds() {
    let own = |delay| vec![Own::delayed(7, delay)];
    let long = Duration::from_secs(61);
    assert_eq!(
        complaint(|config| config.forward.jitter = long),
        "path: forward.jitter is 61s; it must be 0 to 60 s"
    );
    for change in [
        |config: &mut PathConfig| config.forward.jitter = Duration::from_millis(20),
        |config: &mut PathConfig| {
            config.forward.own = vec![Own::delayed(7, Duration::from_millis(19))];
            config.forward.jitter = Duration::from_millis(5);
        },
    ] {
        let complaint = complaint(change);
        let range = "it must be at most a quarter of the direction's shortest delay";
        assert!(complaint.ends_with(range), "{complaint}");
    }
    let varying = Own {
        jitter: Some(Duration::from_millis(5)),
        ..Own::delayed(7, Duration::from_millis(19))
    };
    assert_eq!(
        complaint(|config| config.forward.own = vec![varying]),
        "path: forward.own.jitter is 5ms; it must be at most a quarter of its port's delay"
    );
    assert_eq!(
        complaint(|config| config.backward.own = own(long)),
        "path: backward.own.delay is 61s; it must be 0 to 60 s"
    );
    let mut direction = config().forward;
    direction.jitter = Duration::from_micros(2500);
    direction.own = own(Duration::from_millis(90));
    direction.own.push(Own {
        jitter: Some(Duration::from_millis(1)),
        loss: Some(Loss::Uniform(0.5)),
        ..Own::delayed(8, Duration::from_millis(10))
    });
    let written = serde_json::to_value(&direction).unwrap();
    assert_eq!(written["jitter_ms"], 2.5);
    assert_eq!(
        written["own"],
        json!([
            { "port": 7, "delay_ms": 90.0 },
            { "port": 8, "delay_ms": 10.0, "jitter_ms": 1.0, "loss": 0.5 },
        ])
    );
    assert_eq!(
        serde_json::from_value::<Direction>(written).unwrap(),
        direction
    );
}

#[test]
fn delays_are_written_in_milliseconds() {
    let mut config = config();
    config.backward.rate_bps = None;
    config.backward.delay = Duration::from_micros(12_500);
    let written = serde_json::to_value(&config).unwrap();
    assert_eq!(
        written,
        json!({
            "forward": { "delay_ms": 75.0, "rate_bps": 1_000_000, "queue_packets": 30, "loss": 0.05 },
            "backward": { "delay_ms": 12.5, "queue_packets": 30, "loss": 0.05 },
            "seed": 1,
        })
    );
    assert_eq!(
        serde_json::from_value::<PathConfig>(written).unwrap(),
        config
    );
}

#[test]
fn a_negative_delay_and_an_unknown_field_are_refused() {
    let direction = |text: &str| {
        serde_json::from_str::<Direction>(text)
            .unwrap_err()
            .to_string()
    };
    let negative = direction(r#"{ "delay_ms": -1, "queue_packets": 1, "loss": 0 }"#);
    assert!(
        negative.contains("a delay is -1 ms; it must be 0 to 60000"),
        "{negative}"
    );
    let unknown = direction(r#"{ "delay_ms": 1, "queue_packets": 1, "loss": 0, "jittr": 1 }"#);
    assert!(unknown.contains("jittr"), "{unknown}");
}

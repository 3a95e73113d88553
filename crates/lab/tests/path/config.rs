//! Validation and serialisation of a path's configuration.

use std::time::Duration;

use pillion_lab::path::{Direction, Disorder, Loss, PathConfig, PortOverride};
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

fn error_of(change: impl FnOnce(&mut PathConfig)) -> String {
    let mut config = config();
    change(&mut config);
    config.validate().unwrap_err().to_string()
}

#[test]
fn bounds_of_every_range_are_valid() {
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
fn error_names_field_value_and_range() {
    assert_eq!(
        error_of(|config| config.forward.loss = Loss::Uniform(1.5)),
        "path: invalid forward.loss 1.5: expected 0 to 1"
    );
    assert_eq!(
        error_of(|config| config.backward.queue_packets = 0),
        "path: invalid backward.queue_packets 0: expected 1 to 65536"
    );
    assert_eq!(
        error_of(|config| config.backward.rate_bps = Some(0)),
        "path: invalid backward.rate_bps 0: expected at least 1, or absent"
    );
    assert_eq!(
        error_of(|config| config.forward.delay = Duration::MAX / 2),
        format!(
            "path: invalid forward.delay {:?}: expected 0 to 60 s",
            Duration::MAX / 2
        )
    );
}

#[test]
fn loss_outside_zero_to_one_is_rejected() {
    let error_of =
        |loss| error_of(|config: &mut PathConfig| config.forward.loss = Loss::Uniform(loss));
    assert!(error_of(f64::NAN).contains("forward.loss NaN"));
    assert!(error_of(-0.01).contains("-0.01"));
}

#[test]
fn disorder_is_validated_and_round_trips() {
    let with_disorder = |reorder, duplicate, late| {
        let disorder = Disorder {
            reorder,
            duplicate,
            late,
        };
        move |config: &mut PathConfig| config.backward.disorder = Some(disorder)
    };
    let late = Duration::from_millis(5);
    assert_eq!(
        error_of(with_disorder(-0.5, 0.0, late)),
        "path: invalid backward.disorder.reorder -0.5: expected 0 to 1"
    );
    assert_eq!(
        error_of(with_disorder(0.5, 0.75, late)),
        "path: invalid backward.disorder.duplicate 0.75: expected 0 to 1, and with reorder at most 1"
    );
    assert!(error_of(with_disorder(0.0, f64::NAN, late)).contains("duplicate NaN"));
    assert!(error_of(with_disorder(0.0, 0.0, Duration::MAX)).contains("backward.disorder.late"));
    let mut config = config();
    with_disorder(0.5, 0.5, late)(&mut config);
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
fn burst_and_listed_losses_are_validated_and_round_trip() {
    let lossy = |loss: Loss| move |config: &mut PathConfig| config.forward.loss = loss;
    let runs = |to_good| Loss::GilbertElliott {
        to_bad: 0.01,
        to_good,
        in_bad: 1.0,
        in_good: 0.0,
    };
    assert_eq!(
        error_of(lossy(runs(1.25))),
        "path: invalid forward.loss.to_good 1.25: expected 0 to 1"
    );
    assert_eq!(
        error_of(lossy(Loss::Listed(vec![1, 0]))),
        "path: invalid forward.loss 0: expected numbers of packets, from 1"
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
        lossy(loss)(&mut config);
        config.validate().unwrap();
    }
}

#[test]
fn jitter_and_port_delays_are_validated_and_round_trip() {
    let own = |delay| vec![PortOverride::delayed(7, delay)];
    let long = Duration::from_secs(61);
    assert_eq!(
        error_of(|config| config.forward.jitter = long),
        "path: invalid forward.jitter 61s: expected 0 to 60 s"
    );
    for change in [
        |config: &mut PathConfig| config.forward.jitter = Duration::from_millis(20),
        |config: &mut PathConfig| {
            config.forward.own = vec![PortOverride::delayed(7, Duration::from_millis(19))];
            config.forward.jitter = Duration::from_millis(5);
        },
    ] {
        let error_of = error_of(change);
        let range = "expected at most a quarter of the direction's shortest delay";
        assert!(error_of.ends_with(range), "{error_of}");
    }
    let varying = PortOverride {
        jitter: Some(Duration::from_millis(5)),
        ..PortOverride::delayed(7, Duration::from_millis(19))
    };
    assert_eq!(
        error_of(|config| config.forward.own = vec![varying]),
        "path: invalid forward.own.jitter 5ms: expected at most a quarter of its port's delay"
    );
    assert_eq!(
        error_of(|config| config.backward.own = own(long)),
        "path: invalid backward.own.delay 61s: expected 0 to 60 s"
    );
    let mut direction = config().forward;
    direction.jitter = Duration::from_micros(2500);
    direction.own = own(Duration::from_millis(90));
    direction.own.push(PortOverride {
        jitter: Some(Duration::from_millis(1)),
        loss: Some(Loss::Uniform(0.5)),
        ..PortOverride::delayed(8, Duration::from_millis(10))
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
fn delays_are_serialised_in_milliseconds() {
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
fn negative_delay_and_unknown_field_are_rejected() {
    let direction = |text: &str| {
        serde_json::from_str::<Direction>(text)
            .unwrap_err()
            .to_string()
    };
    let negative = direction(r#"{ "delay_ms": -1, "queue_packets": 1, "loss": 0 }"#);
    assert!(
        negative.contains("invalid delay -1 ms: expected 0 to 60000"),
        "{negative}"
    );
    let unknown = direction(r#"{ "delay_ms": 1, "queue_packets": 1, "loss": 0, "jittr": 1 }"#);
    assert!(unknown.contains("jittr"), "{unknown}");
}

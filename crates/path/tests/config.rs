//! What a configuration accepts, and how it is written.

use std::time::Duration;

use pillion_path::{Direction, Disorder, PathConfig};
use serde_json::json;

fn config() -> PathConfig {
    let direction = Direction {
        delay: Duration::from_millis(75),
        rate_bps: Some(1_000_000),
        queue_packets: 30,
        loss: 0.05,
        disorder: None,
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
    config.forward.loss = 0.0;
    config.backward.loss = 1.0;
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
        complaint(|config| config.forward.loss = 1.5),
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
    assert!(complaint(|config| config.forward.loss = f64::NAN).contains("forward.loss is NaN"));
    assert!(complaint(|config| config.forward.loss = -0.01).contains("-0.01"));
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
    let unknown = direction(r#"{ "delay_ms": 1, "queue_packets": 1, "loss": 0, "jitter": 1 }"#);
    assert!(unknown.contains("jitter"), "{unknown}");
}

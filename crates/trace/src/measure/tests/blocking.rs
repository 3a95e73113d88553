use super::*;

#[test]
fn bytes_that_wait_are_told_with_what_they_wait_behind() {
    let script = one_loss();
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4]);
    let results = measure_both(&here, &there, Options::default());
    let blocking = &results.connections[0].main.head_of_line;
    assert_eq!(ms(&blocking.wait), [(210, 1), (240, 1), (270, 1)]);
    assert_eq!(
        (blocking.blocked_bytes, blocking.readable_bytes),
        (300, 400)
    );
    assert_eq!(blocking.blocked_share, Some(0.75));
    assert!((blocking.byte_seconds - 72.0).abs() < 1e-9);
    let [blocker] = blocking.behind[..] else {
        panic!("{:?}", blocking.behind);
    };
    assert_eq!(
        (blocker.position, blocker.ranges, blocker.bytes),
        (1, 3, 300)
    );
    assert_eq!(blocker.longest_ms, 270.0);
    assert!(results.all.main.head_of_line.behind.is_empty());
}

#[test]
fn bytes_that_come_together_with_the_missing_one_do_not_wait() {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(101, 201);
    script
        .at(500)
        .data(1, 201)
        .at(650)
        .ack(201)
        .at(700)
        .close(201);
    let (here, there) = carry(&script, ONE_WAY, AHEAD, &[4, 5]);
    let results = measure_both(&here, &there, Options::default());
    let main = &results.connections[0].main;
    assert_eq!(ms(&main.delay.application), [(345, 1), (375, 1)]);
    assert!(main.head_of_line.wait.is_empty());
    assert!(main.head_of_line.behind.is_empty());
}

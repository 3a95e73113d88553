//! The kernel's emulator.

use std::time::Duration;

use crate::settings::experiment::{Emulation, Loss, SOURCE_PORTS};

use crate::{Error, Namespace};

/// Packets that netem may hold: more than any path here does.
const LIMIT: u32 = 1_000_000;

/// True if the running kernel has netem.
///
/// # Errors
/// [`Error::Namespace`], or [`Error::System`] where there is no `tc`.
pub(super) fn is_there() -> Result<bool, Error> {
    let namespace = Namespace::create().map_err(|source| Error::Namespace {
        name: "of a trial".to_owned(),
        source,
    })?;
    let trial = ["qdisc", "add", "dev", "lo", "root", "netem"];
    let action = "run tc, which is of iproute2";
    let output = namespace.run("tc", &trial, "");
    let output = output.map_err(|source| Error::System { action, source })?;
    Ok(output.status.success())
}

/// What netem is to do, in the words of `tc`. It has no part in jitter.
pub(super) fn words(emulation: &Emulation) -> String {
    let mut words = format!("netem limit {LIMIT} delay {}", time(emulation.delay));
    match &emulation.loss {
        Some(Loss::Uniform(share)) => words += &format!(" loss random {}", percent(*share)),
        Some(Loss::GilbertElliott {
            to_bad,
            to_good,
            in_bad,
            in_good,
        }) => {
            let [p, r, bad, good] = [to_bad, to_good, in_bad, in_good].map(|it| percent(*it));
            words += &format!(" loss gemodel {p} {r} {bad} {good}");
        }
        Some(Loss::Listed(_)) | None => {}
    }
    if let Some(disturbance) = emulation.disturbance.filter(|it| it.duplicate > 0.0) {
        words += &format!(" duplicate {}", percent(disturbance.duplicate));
    }
    words
}

/// Commands of `tc` that emulate one direction on the device that sends in it.
pub(super) fn lines(device: &str, emulation: &Emulation) -> Vec<String> {
    let words = words(emulation);
    let mut lines = vec![format!("qdisc add dev {device} root handle 1: {words}")];
    if let Some(disturbance) = emulation.disturbance.filter(|it| it.reorder > 0.0) {
        // Behind the path's own delay, all but some pass a second one at once.
        let late = time(disturbance.late);
        let at_once = percent(1.0 - disturbance.reorder);
        lines.push(format!(
            "qdisc add dev {device} parent 1:1 handle 2: netem limit {LIMIT} delay {late} \
             reorder {at_once}"
        ));
    }
    lines
}

/// The same, otherwise for each stream that has anything of its own, by its number. Its packets have the
/// stream's source port as `port`: `proto-src` or `proto-dst`.
pub(super) fn lines_by_stream(
    device: &str,
    emulation: &Emulation,
    port: &str,
    own: &[(u32, Emulation)],
) -> Vec<String> {
    // Classes whose rate never holds anything up.
    let class = "htb rate 10gbit quantum 60000";
    const OTHERS: &str = "ffff";
    let mut lines = vec![format!(
        "qdisc add dev {device} root handle 1: htb default {OTHERS}"
    )];
    let others = [(OTHERS.to_owned(), emulation)];
    let own = own.iter();
    let own = own.map(|(stream, own)| (format!("{:x}", stream + 1), own));
    for (minor, emulation) in others.into_iter().chain(own) {
        let words = words(emulation);
        lines.push(format!(
            "class add dev {device} parent 1: classid 1:{minor} {class}"
        ));
        lines.push(format!("qdisc add dev {device} parent 1:{minor} {words}"));
    }
    lines.push(format!(
        "filter add dev {device} parent 1: protocol ip handle 1 flow map key {port} \
         addend -{SOURCE_PORTS} baseclass 1:1"
    ));
    lines
}

/// A duration in microseconds, in the words of `tc`.
fn time(duration: Duration) -> String {
    format!("{}us", duration.as_micros())
}

fn percent(share: f64) -> String {
    format!("{}%", share * 100.0)
}

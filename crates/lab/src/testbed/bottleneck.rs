use super::Node;
use crate::experiment::{Discipline, Limit, Run, Shaper};
use crate::{Error, kernel_release};

/// The queue's handle, by which it is found among the counters.
pub const QUEUE: &str = "10:";

/// Puts the rate and the queue on the router's device towards the receiver.
pub(super) fn build(router: &Node, device: &str, run: &Run) -> Result<(), Error> {
    let bottleneck = &run.bottleneck;
    let queue = queue(run);
    let burst = bottleneck.burst_bytes;
    let on = |rest: &str| {
        let command = format!("tc {rest}");
        router.run(&command).map(drop).map_err(lacking)
    };
    let alone = bottleneck.queue.discipline == Discipline::Cake;
    let (Some(rate), false) = (bottleneck.rate_bps, alone) else {
        return on(&format!(
            "qdisc add dev {device} root handle {QUEUE} {queue}"
        ));
    };
    match bottleneck.shaper {
        Shaper::Htb => {
            on(&format!(
                "qdisc add dev {device} root handle 1: htb default 1"
            ))?;
            on(&format!(
                "class add dev {device} parent 1: classid 1:1 htb rate {rate}bit \
                 burst {burst} cburst {burst} quantum 1514"
            ))?;
        }
        Shaper::Tbf => on(&format!(
            // The limit is that of a queue which ours takes the place of.
            "qdisc add dev {device} root handle 1: tbf rate {rate}bit burst {burst} limit {burst}"
        ))?,
    }
    on(&format!(
        "qdisc add dev {device} parent 1:1 handle {QUEUE} {queue}"
    ))
}

/// The queue in the words of `tc`.
fn queue(run: &Run) -> String {
    let queue = &run.bottleneck.queue;
    let discipline = queue.discipline;
    let mut words = vec![discipline.name().to_owned()];
    let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
    if let Some(limit) = queue.limit.and_then(|limit| in_units(limit, run)) {
        match discipline {
            Discipline::Cake => add("memlimit", limit.to_string()),
            _ => add("limit", limit.to_string()),
        }
    }
    let rate = run.bottleneck.rate_bps.map(|rate| format!("{rate}bit"));
    let given = |word| queue.options.iter().any(|option| option == word);
    match discipline {
        Discipline::Cake => add("bandwidth", rate.unwrap_or_else(|| "unlimited".to_owned())),
        Discipline::Red => {
            if !given("avpkt") {
                add("avpkt", "1000".to_owned());
            }
            if let Some(rate) = rate.filter(|_| !given("bandwidth")) {
                add("bandwidth", rate);
            }
        }
        _ => {}
    }
    words.extend(queue.options.iter().cloned());
    words.join(" ")
}

/// The queue's limit in packets or bytes, as the discipline counts.
fn in_units(limit: Limit, run: &Run) -> Option<u64> {
    const PACKET: f64 = 1500.0;
    Some(match limit {
        Limit::Packets(count) | Limit::Bytes(count) => count.into(),
        Limit::BandwidthDelayProducts(products) => {
            let bytes = products * run.bdp_bytes()?;
            // Rounded up, as in the thesis, section 4.1.
            match run.bottleneck.queue.discipline.counts_bytes() {
                true => bytes.ceil() as u64,
                false => (bytes / PACKET).ceil() as u64,
            }
        }
    })
}

/// The error of a discipline that is not built into the kernel.
pub(super) fn lacking(error: Error) -> Error {
    match error {
        Error::Command {
            command, reason, ..
        } if reason.contains("qdisc kind is unknown") => Error::Lacks {
            what: format!("a queue discipline of `{command}`"),
            kernel: kernel_release(),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::tests::run;

    #[test]
    fn a_limit_in_products_is_rounded_up_to_whole_packets() {
        // 5 Mbit/s and 150 ms are 93,750 B, and the papers' queue has 63 packets.
        let mut run = run();
        run.bottleneck.queue.limit = Some(Limit::BandwidthDelayProducts(1.0));
        assert_eq!(queue(&run), "pfifo limit 63");
        run.bottleneck.queue.discipline = Discipline::Bfifo;
        assert_eq!(queue(&run), "bfifo limit 93750");
    }

    #[test]
    fn a_queue_gets_what_tc_insists_on_unless_the_experiment_says_it() {
        let mut run = run();
        run.bottleneck.queue.limit = Some(Limit::Bytes(90_000));
        run.bottleneck.queue.discipline = Discipline::Red;
        assert_eq!(
            queue(&run),
            "red limit 90000 avpkt 1000 bandwidth 5000000bit"
        );
        run.bottleneck.queue.options = ["avpkt", "500"].map(String::from).to_vec();
        assert_eq!(
            queue(&run),
            "red limit 90000 bandwidth 5000000bit avpkt 500"
        );
        run.bottleneck.queue.discipline = Discipline::Cake;
        run.bottleneck.queue.options.clear();
        assert_eq!(queue(&run), "cake memlimit 90000 bandwidth 5000000bit");
    }
}

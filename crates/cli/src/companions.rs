//! Options that switch on mechanisms of TCP's own beside bundling; docs/companions.md
//! describes them.

use std::time::Duration;

use clap::Args;
use pillion_bundler::{Companions, CongestionControl, Totals};

#[derive(Args)]
#[command(next_help_heading = "Companions: mechanisms of TCP's own, which stay when pillion ends")]
pub struct CompanionArgs {
    /// Time-outs of a stream with fewer than four packets in flight do not double, six in a
    /// row
    #[arg(long)]
    linear_timeouts: bool,

    /// Small segments leave at once: Nagle's algorithm is off
    #[arg(long)]
    nodelay: bool,

    /// The shortest retransmission time-out, in milliseconds, up to 200
    #[arg(long, value_name = "MS", value_parser = parse_short)]
    rto_min: Option<Duration>,

    /// The longest that this end delays an ACK, in milliseconds, up to 200
    #[arg(long, value_name = "MS", value_parser = parse_short)]
    delack_max: Option<Duration>,

    /// End a connection (ETIMEDOUT) whose data is unacknowledged for so many milliseconds
    #[arg(long, value_name = "MS", value_parser = parse_user_timeout)]
    user_timeout: Option<Duration>,

    /// The congestion control, by the kernel's name for it
    #[arg(long, value_name = "NAME", value_parser = parse_congestion)]
    congestion: Option<CongestionControl>,
}

impl CompanionArgs {
    pub fn companions(&self) -> Companions {
        Companions {
            linear_timeouts: self.linear_timeouts,
            nodelay: self.nodelay,
            rto_min: self.rto_min,
            delack_max: self.delack_max,
            user_timeout: self.user_timeout,
            congestion: self.congestion,
        }
    }
}

/// How often each was set, and refused; empty if none was asked for.
pub fn summary(totals: &Totals) -> String {
    let parts = [
        ("set", &totals.companions_set),
        ("refused by the kernel", &totals.companions_refused),
    ];
    let parts = parts.iter().filter(|(_, counts)| !counts.is_empty());
    parts
        .map(|(what, counts)| {
            let counts = counts.iter();
            let words: Vec<_> = counts
                .map(|(companion, count)| format!("{} {count}", companion.label()))
                .collect();
            format!("; companions {what}: {}", words.join(", "))
        })
        .collect()
}

/// Those of a connection in a few words, as in `linear-timeouts rto-min=50`.
pub fn words(companions: &Companions) -> String {
    let flag = |name: &str, on: bool| on.then(|| name.to_owned());
    let time = |name: &str, time: Option<Duration>| {
        time.map(|time| format!("{name}={}", time.as_secs_f64() * 1e3))
    };
    let words = [
        flag("linear-timeouts", companions.linear_timeouts),
        flag("nodelay", companions.nodelay),
        time("rto-min", companions.rto_min),
        time("delack-max", companions.delack_max),
        time("user-timeout", companions.user_timeout),
        companions
            .congestion
            .map(|name| format!("congestion={name}")),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn parse_short(text: &str) -> Result<Duration, String> {
    let (shortest, longest) = (Companions::shortest(), Companions::LONGEST);
    match text
        .parse::<f64>()
        .map(|ms| Duration::try_from_secs_f64(ms / 1e3))
    {
        Ok(Ok(time)) if (shortest..=longest).contains(&time) => Ok(time),
        _ => Err(format!(
            "expected milliseconds from {} (two ticks of this kernel's clock) to {}",
            shortest.as_secs_f64() * 1e3,
            longest.as_millis()
        )),
    }
}

fn parse_user_timeout(text: &str) -> Result<Duration, String> {
    match text.parse::<u32>() {
        Ok(ms) if (1..=i32::MAX as u32).contains(&ms) => Ok(Duration::from_millis(ms.into())),
        _ => Err("expected whole milliseconds from 1 to 2147483647".to_owned()),
    }
}

fn parse_congestion(name: &str) -> Result<CongestionControl, String> {
    CongestionControl::find(name).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use pillion_bundler::Companion;

    use super::*;

    #[test]
    fn times_are_read_in_milliseconds_within_the_kernels_bounds() {
        assert_eq!(parse_short("50.5"), Ok(Duration::from_micros(50_500)));
        assert_eq!(parse_short("200"), Ok(Duration::from_millis(200)));
        for mistake in [
            "", "0", "0.5", "200.1", "-40", "NaN", "inf", "1e300", "40ms",
        ] {
            let said = parse_short(mistake).unwrap_err();
            assert!(said.ends_with(" to 200"), "{mistake}: {said}");
        }
        let longest = Duration::from_millis(i32::MAX as u64);
        assert_eq!(parse_user_timeout("2147483647"), Ok(longest));
        for mistake in ["", "0", "-1", "1.5", "2147483648", "soon"] {
            assert!(parse_user_timeout(mistake).is_err(), "{mistake}");
        }
    }

    #[test]
    fn a_congestion_control_that_the_kernel_lacks_is_refused_beside_those_it_has() {
        let said = parse_congestion("nosuch").unwrap_err();
        assert!(
            said.contains("the kernel offers: ") && said.contains("reno"),
            "{said}"
        );
    }

    #[test]
    fn what_a_connection_has_is_told_under_the_options_names() {
        let all = Companions {
            linear_timeouts: true,
            nodelay: true,
            rto_min: Some(Duration::from_micros(50_500)),
            delack_max: Some(Duration::from_millis(10)),
            user_timeout: Some(Duration::from_secs(30)),
            congestion: "reno".parse().ok(),
        };
        let told = "linear-timeouts nodelay rto-min=50.5 delack-max=10 user-timeout=30000 \
                    congestion=reno";
        assert_eq!(words(&all), told);
        let names: Vec<_> = told
            .split(' ')
            .filter_map(|word| word.split('=').next())
            .collect();
        let all: Vec<_> = Companion::ALL.iter().map(|one| one.name()).collect();
        assert_eq!(names, all);
        assert_eq!(words(&Companions::default()), "");
    }
}

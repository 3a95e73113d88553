//! Round-trip times of their own.

use std::time::Duration;

use rand::SeedableRng;
use rand_pcg::Pcg64;

use crate::Error;
use crate::experiment::{RoundTrips, Run};

/// The delay of the direction back for each stream that has its own, by the stream's number.
///
/// # Errors
/// [`Error::Unfit`] if a round trip is shorter than the direction to the receiver takes.
pub(super) fn delays(run: &Run) -> Result<Vec<(u32, Duration)>, Error> {
    let mut delays = Vec::new();
    let mut first = 0;
    for streams in &run.streams {
        let count = streams.traffic.streams;
        let name = &streams.traffic.name;
        let times = streams
            .round_trips
            .iter()
            .flat_map(|own| times(own, run.seed ^ u64::from(first)).take(count));
        for (time, stream) in times.zip(first..) {
            let back = time.checked_sub(run.forward.delay).ok_or_else(|| {
                let (time, there) = (ms(time), ms(run.forward.delay));
                Error::Unfit(format!(
                    "a stream of {name} has a round-trip time of {time} ms, and {there} ms pass \
                     on the way there alone; shorten the path's delay, or lengthen the stream's"
                ))
            })?;
            delays.push((stream, back));
        }
        first += count as u32;
    }
    Ok(delays)
}

fn times(own: &RoundTrips, seed: u64) -> Box<dyn Iterator<Item = Duration> + '_> {
    match own {
        RoundTrips::Steps { first, step } => {
            Box::new((0..).map(move |number: u32| *first + *step * number))
        }
        RoundTrips::Drawn(distribution) => {
            let mut draws = Pcg64::seed_from_u64(seed);
            Box::new(std::iter::repeat_with(move || {
                let ms = distribution.draw(&mut draws);
                Duration::try_from_secs_f64(ms / 1e3).unwrap_or(Duration::MAX)
            }))
        }
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::tests::run;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn each_next_stream_has_a_step_more_and_the_way_there_is_common() {
        let mut run = run();
        run.streams[1].round_trips = Some(RoundTrips::Steps {
            first: 100 * MS,
            step: 5 * MS,
        });
        let delays = delays(&run).unwrap();
        assert_eq!(delays, [(2, 25 * MS), (3, 30 * MS), (4, 35 * MS)]);
    }

    #[test]
    fn a_round_trip_shorter_than_the_way_there_is_refused_by_its_group() {
        let mut run = run();
        run.streams[0].round_trips = Some(RoundTrips::Steps {
            first: 10 * MS,
            step: MS,
        });
        let error = delays(&run).unwrap_err().to_string();
        assert!(
            error.contains("thin has a round-trip time of 10 ms"),
            "{error}"
        );
    }

    #[test]
    fn round_trips_are_drawn_from_the_seed() {
        let drawn = |seed| {
            let mut run = run();
            run.seed = seed;
            let mean = 200.0;
            let distribution = pillion_traffic::Distribution::Normal { mean, sd: 5.0 };
            run.streams[0].round_trips = Some(RoundTrips::Drawn(distribution));
            delays(&run).unwrap()
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }
}

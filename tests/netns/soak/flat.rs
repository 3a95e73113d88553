//! Does memory stay flat?

use super::memory::Sample;
use super::weather::DEVICES;

/// Samples at even distances.
#[derive(Debug, Default)]
pub struct Samples(Vec<Sample>);

/// A measure of a sample, its name, and by how much it may grow: a share, and bytes or files.
type Measure = (&'static str, fn(&Sample) -> u64, (f64, u64));

/// Files that a pillion has open while it reads its rules again, and may have so in a sample.
const READING: u64 = 3;
/// Those with which it stands at the devices that the weather makes.
const LINKS: u64 = 2 * DEVICES as u64;
/// The row of the cgroup that the rules name, bytes: the second table has it from the first time on
/// that they are read again.
const ROW: u64 = 80;

pub const MEASURES: [Measure; 4] = [
    ("resident memory, bytes", |it| it.resident, (0.05, 1 << 20)),
    ("maps and programs, bytes", |it| it.maps, (0.0, ROW)),
    ("open files", |it| it.files, (0.0, READING + LINKS)),
    ("kernel memory, bytes", |it| it.kernel, (0.5, 32 << 20)),
];

impl Samples {
    pub fn add(&mut self, sample: Sample) {
        self.0.push(sample);
    }

    /// The median of a measure when so much of the time has passed, if it has, of as many samples
    /// as there are to be: over a twentieth of them.
    pub fn at(&self, share: f64, of_all: usize, measure: fn(&Sample) -> u64) -> Option<u64> {
        self.before((share * of_all as f64).round() as usize, of_all, measure)
    }

    fn before(&self, end: usize, of_all: usize, measure: fn(&Sample) -> u64) -> Option<u64> {
        let begin = end.saturating_sub((of_all / 20).max(1));
        let mut values: Vec<_> = self.0.get(begin..end)?.iter().map(measure).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied()
    }

    /// An error says what has grown since a tenth of the time had passed.
    pub fn check(&self, of_all: usize) -> Result<(), String> {
        for (name, measure, (share, more)) in MEASURES {
            let first = self.at(0.1, of_all, measure);
            let last = self.before(self.0.len(), of_all, measure);
            let Some((first, last)) = first.zip(last) else {
                continue;
            };
            let most = first + (first as f64 * share) as u64 + more;
            if last > most {
                return Err(format!("{name}: {first} at first, {last} now"));
            }
        }
        Ok(())
    }
}

#[test]
fn growth_is_told_from_noise() {
    let samples = |grows: u64| {
        let mut samples = Samples::default();
        for n in 0..100 {
            samples.add(Sample {
                resident: 16 << 20,
                maps: 1000 + n * grows,
                kernel: (20 + n % 7) << 20,
                ..Sample::default()
            });
        }
        samples
    };
    assert_eq!(samples(0).check(100), Ok(()));
    let said = samples(2).check(100).unwrap_err();
    assert!(said.starts_with("maps and programs, bytes: 10"), "{said}");
}

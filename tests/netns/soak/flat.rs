
use super::memory::Sample;
use super::weather::DEVICES;

/// Memory samples at regular intervals.
#[derive(Debug, Default)]
pub struct Samples(Vec<Sample>);

/// Name, getter and allowed growth of a measure: a share, and bytes or files.
type Measure = (&'static str, fn(&Sample) -> u64, (f64, u64));

/// Extra open files of a pillion during a reload.
const READING: u64 = 3;
/// Links to the devices that the device churn creates.
const LINKS: u64 = 2 * DEVICES as u64;
/// Map bytes of the rules' cgroup entry, which the second table gets at the first reload.
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

    /// Returns the median of a measure over a twentieth of the planned `total` samples, taken when
    /// `share` of the time has passed. `None` if that time has not come.
    pub fn at(&self, share: f64, of_all: usize, measure: fn(&Sample) -> u64) -> Option<u64> {
        self.before((share * of_all as f64).round() as usize, of_all, measure)
    }

    fn before(&self, end: usize, of_all: usize, measure: fn(&Sample) -> u64) -> Option<u64> {
        let begin = end.saturating_sub((of_all / 20).max(1));
        let mut values: Vec<_> = self.0.get(begin..end)?.iter().map(measure).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied()
    }

    /// Compares the latest samples with those after a tenth of the time. An error names the grown measure.
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

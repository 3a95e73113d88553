/// What is known of values exactly, however many of them are kept.
#[derive(Debug, Clone, Copy)]
pub struct Moments {
    /// The number of values.
    pub count: u64,
    /// The smallest value.
    pub smallest: u64,
    /// The largest value.
    pub largest: u64,
    /// The first value. Sums are of differences from it, so that little is lost of large values
    /// that differ little.
    pub first: u64,
    /// The sum of all differences from the first value.
    pub sum: f64,
    /// The sum of their squares.
    pub sum_of_squares: f64,
}

impl Moments {
    /// Those of no value yet, of which this one comes first.
    pub(super) fn beginning_with(first: u64) -> Self {
        Self {
            count: 0,
            smallest: first,
            largest: first,
            first,
            sum: 0.0,
            sum_of_squares: 0.0,
        }
    }

    #[inline]
    pub(super) fn record(&mut self, value: u64, times: u64) {
        self.count += times;
        self.smallest = self.smallest.min(value);
        self.largest = self.largest.max(value);
        let difference = value.wrapping_sub(self.first).cast_signed() as f64;
        let sum = difference * times.cast_signed() as f64;
        self.sum += sum;
        self.sum_of_squares += difference * sum;
    }

    /// Adds the values of another.
    pub(super) fn add(&mut self, other: &Self) {
        let shift = other.first as f64 - self.first as f64;
        let count = other.count as f64;
        self.sum_of_squares +=
            other.sum_of_squares + 2.0 * shift * other.sum + count * shift * shift;
        self.sum += other.sum + count * shift;
        self.count += other.count;
        self.smallest = self.smallest.min(other.smallest);
        self.largest = self.largest.max(other.largest);
    }

    /// The moments of so many values that are distributed alike.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        let factor = count as f64 / self.count as f64;
        Self {
            count,
            sum: self.sum * factor,
            sum_of_squares: self.sum_of_squares * factor,
            ..self
        }
    }
}

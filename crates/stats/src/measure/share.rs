/// The share that a part has of the whole; `None` if there is nothing to have a share in.
#[must_use]
pub fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

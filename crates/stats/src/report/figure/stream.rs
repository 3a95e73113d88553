/// What streams are, which have a style of their own in all figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Thin, or as thin ones are, and not bundled.
    Plain,
    /// Bundled.
    Bundled,
    /// Greedy.
    Greedy,
}

impl Stream {
    /// The style of a figure's lines of such streams.
    #[must_use]
    pub fn style(self) -> usize {
        self as usize
    }
}

/// How a number that is kept changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The number only grows.
    Counter,
    /// The number may fall as well.
    Gauge,
}

/// A number that is kept, and all that those who show it have to know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistic {
    /// The number's name; it ends in the unit where there is one: `_bytes`, or `_us` for
    /// microseconds.
    pub name: &'static str,
    /// How the number changes.
    pub kind: Kind,
    /// What the number is, in sentences.
    pub meaning: &'static str,
}

/// The statistic of a field that is documented as `meaning`, line by line.
macro_rules! statistic {
    ($name:ident: $kind:ident, $($meaning:literal)+) => {
        $crate::Statistic {
            name: stringify!($name),
            kind: $crate::Kind::$kind,
            meaning: concat!($($meaning),+).trim_ascii_start(),
        }
    };
}
pub(crate) use statistic;

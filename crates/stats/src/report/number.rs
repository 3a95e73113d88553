//! Numbers for people: sensible digits, grouped thousands, "–" for missing values.
//!
//! No-break spaces join groups and units, so that a number never wraps. Every function takes a
//! number or an `Option`; `None`, NaN and infinities are [`MISSING`].

/// Placeholder for a missing number.
pub const MISSING: &str = "–";

const NO_BREAK_SPACE: char = '\u{a0}';

/// A time in milliseconds, without its unit: `7.51`, `75.1`, `412.3`, `1 486`.
pub fn millis(ms: impl Into<Option<f64>>) -> String {
    finite(ms).map_or_else(missing, |v| by_size(v, &[(10.0, 2), (1000.0, 1)]))
}

/// A time in seconds with three decimals, without its unit: `0.042`, `1 204.500`.
pub fn seconds(s: impl Into<Option<f64>>) -> String {
    finite(s).map_or_else(missing, |v| fixed(v, 3))
}

/// A count: `950`, `24 000`.
pub fn count(n: u64) -> String {
    group(&n.to_string())
}

/// The noun `noun` in the number that `n` requires: `connection`, `losses`.
pub fn plural(n: u64, noun: &str) -> String {
    let ending = match (n, noun.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{noun}{ending}")
}

/// A count with its noun, for logs, without digit groups: `1 connection`, `20000 losses`.
pub fn counted(n: u64, noun: &str) -> String {
    format!("{n} {}", plural(n, noun))
}

/// A mean count: `3.33`, `12.7`, `24 000`; whole numbers without decimals.
pub fn amount(amount: impl Into<Option<f64>>) -> String {
    let amount = finite(amount);
    match amount.filter(|v| v.fract() == 0.0) {
        Some(whole) => fixed(whole, 0),
        None => millis(amount),
    }
}

/// A size in bytes, in decimal units: `950 B`, `2.4 MB`, `24.3 MB`, `243 MB`.
pub fn bytes(bytes: impl Into<Option<f64>>) -> String {
    scaled(bytes, &["B", "kB", "MB", "GB", "TB", "PB"])
}

/// A rate in bit/s, in decimal units: `950 bit/s`, `9.6 kbit/s`, `243 Mbit/s`.
pub fn rate(bit_per_s: impl Into<Option<f64>>) -> String {
    scaled(
        bit_per_s,
        &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"],
    )
}

fn scaled(value: impl Into<Option<f64>>, units: &[&str]) -> String {
    let Some(mut value) = finite(value) else {
        return missing();
    };
    let mut unit = 0;
    while value.abs() >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = match unit {
        0 => fixed(value, 0),
        _ => by_size(value, &[(100.0, 1)]),
    };
    format!("{digits}{NO_BREAK_SPACE}{}", units[unit])
}

/// A ratio: `0.53x`, `1.04x`, `4.9x`, `12x`.
pub fn ratio(ratio: impl Into<Option<f64>>) -> String {
    finite(ratio).map_or_else(missing, |v| {
        format!("{}x", by_size(v, &[(2.0, 2), (10.0, 1)]))
    })
}

/// A share (0 to 1) in per cent, two significant digits below 10 %: `0.02 %`, `4.1 %`, `37 %`.
pub fn percent(share: impl Into<Option<f64>>) -> String {
    finite(share).map_or_else(missing, |v| {
        let value = v * 100.0;
        let decimals = match value.abs() {
            a if a >= 9.95 || a == 0.0 => 0,
            a => (1.0 - a.log10().floor()).clamp(1.0, 9.0) as usize,
        };
        let digits = fixed(value, decimals);
        let digits = match decimals {
            0 => &digits,
            _ => trimmed(&digits),
        };
        format!("{digits}{NO_BREAK_SPACE}%")
    })
}

/// The label of an axis tick, exact to the `step` between ticks: `0`, `0.5`, `1`, `1 500`.
pub(crate) fn tick(value: f64, step: f64) -> String {
    let magnitude = value.abs().max(step);
    if value == 0.0 {
        return "0".into();
    }
    if !(1e-6..1e9).contains(&magnitude) {
        return format!("{value:e}");
    }
    let decimals = (-step.log10()).ceil().clamp(0.0, 9.0) as usize;
    let label = fixed(value, decimals);
    match decimals {
        0 => label,
        _ => trimmed(&label).into(),
    }
}

fn trimmed(decimal: &str) -> &str {
    decimal.trim_end_matches('0').trim_end_matches('.')
}

fn missing() -> String {
    MISSING.into()
}

fn finite(value: impl Into<Option<f64>>) -> Option<f64> {
    value.into().filter(|v| v.is_finite())
}

/// Formats with the decimals of the first limit above the rounded value; none above the last limit.
fn by_size(value: f64, limits: &[(f64, usize)]) -> String {
    for &(limit, decimals) in limits {
        let unit = 10_f64.powi(decimals as i32);
        if (value.abs() * unit).round() / unit < limit {
            return fixed(value, decimals);
        }
    }
    fixed(value, 0)
}

fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(zero) if zero.chars().all(|c| c == '0' || c == '.') => zero.into(),
        _ => group(&text),
    }
}

/// Groups the digits before the decimal point by three.
fn group(text: &str) -> String {
    let (sign, digits) = text
        .strip_prefix('-')
        .map_or(("", text), |digits| ("\u{2212}", digits));
    let whole = digits.find('.').unwrap_or(digits.len());
    let mut out = String::from(sign);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && i < whole && (whole - i) % 3 == 0 {
            out.push(NO_BREAK_SPACE);
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spaced(text: String) -> String {
        text.replace(NO_BREAK_SPACE, " ")
    }

    #[test]
    fn milliseconds_have_three_significant_digits() {
        let shown = [0.0, 7.514, 9.999, 75.12, 999.96, 1486.4, 1234567.0, -75.1];
        let shown = shown.map(|v| spaced(millis(v)));
        assert_eq!(
            shown,
            [
                "0.00",
                "7.51",
                "10.0",
                "75.1",
                "1 000",
                "1 486",
                "1 234 567",
                "\u{2212}75.1"
            ]
        );
    }

    #[test]
    fn seconds_have_three_decimals() {
        let shown = [0.0, 0.0421, 1204.5].map(|v| spaced(seconds(v)));
        assert_eq!(shown, ["0.000", "0.042", "1 204.500"]);
    }

    #[test]
    fn sizes_change_unit_before_four_digits() {
        let shown = [0.0, 950.0, 999.6, 2.4e6, 24.31e6, 243e6, 999.7e6, 4e18];
        let shown = shown.map(|v| spaced(bytes(v)));
        assert_eq!(
            shown,
            [
                "0 B", "950 B", "1.0 kB", "2.4 MB", "24.3 MB", "243 MB", "1.0 GB", "4 000 PB"
            ]
        );
    }

    #[test]
    fn rates_are_in_bits() {
        let shown = [950.0, 9600.0, 243e6].map(|v| spaced(rate(v)));
        assert_eq!(shown, ["950 bit/s", "9.6 kbit/s", "243 Mbit/s"]);
    }

    #[test]
    fn ratios_and_shares_have_two_significant_digits() {
        assert_eq!(
            [0.531, 1.04, 1.999, 4.91, 12.3].map(ratio),
            ["0.53x", "1.04x", "2.0x", "4.9x", "12x"]
        );
        assert_eq!(
            [0.0, 0.0002, 0.00025, 0.041, 0.37, 1.0].map(|v| spaced(percent(v))),
            ["0 %", "0.02 %", "0.025 %", "4.1 %", "37 %", "100 %"]
        );
    }

    #[test]
    fn missing_numbers_are_dashes() {
        for none in [None, Some(f64::NAN), Some(f64::INFINITY)] {
            let shown = [millis(none), seconds(none), bytes(none), ratio(none)];
            assert_eq!(shown, [MISSING; 4]);
            assert_eq!(percent(none), MISSING);
        }
    }

    #[test]
    fn whole_amounts_have_no_decimals() {
        let shown = [3.0, 24_000.0, -2.0, 10.0 / 3.0, 317.25].map(|v| spaced(amount(v)));
        assert_eq!(shown, ["3", "24 000", "\u{2212}2", "3.33", "317.2"]);
    }

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!(
            [7, 999, 1000, 24_000, 1_234_567].map(|n| spaced(count(n))),
            ["7", "999", "1 000", "24 000", "1 234 567"]
        );
    }
}

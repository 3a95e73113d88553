//! What a program with tests prints, read.

use std::collections::BTreeMap;

/// The outcome of each test that has one, `true` if it passed.
pub fn outcomes(lines: &[String]) -> BTreeMap<String, bool> {
    let words = lines.iter().filter_map(|line| line.strip_prefix("test "));
    let words = words.filter_map(|line| line.rsplit_once(" ... "));
    let known = words.filter_map(|(name, outcome)| match outcome {
        "ok" => Some((name.to_owned(), true)),
        "FAILED" => Some((name.to_owned(), false)),
        _ => None,
    });
    known.collect()
}

/// How many tests the runs said that they would run.
pub fn promised(lines: &[String]) -> usize {
    let counts = lines.iter().filter_map(|line| {
        let count = line.strip_prefix("running ")?.split(' ').next()?;
        count.parse::<usize>().ok()
    });
    counts.sum()
}

/// What a failed test printed.
pub fn output_of<'a>(lines: &'a [String], test: &str) -> Vec<&'a str> {
    let begin = format!("---- {test} stdout ----");
    let lines = lines.iter().map(String::as_str);
    let after = lines.skip_while(|line| *line != begin).skip(1);
    let own = after.take_while(|line| !line.starts_with("---- ") && *line != "failures:");
    own.filter(|line| !line.trim().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed() -> Vec<String> {
        let text = "\
running 3 tests
test a::passes ... ok
test a::b::takes_long has been running for over 60 seconds
test a::fails ... FAILED
test a::b::takes_long ... ok

failures:

---- a::fails stdout ----

thread 'a::fails' panicked at tests/wire/a.rs:12:5:
too late

failures:
    a::fails

test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
running 1 test
test c::timed ... ok
";
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn outcomes_counts_and_the_words_of_failures_are_read() {
        let lines = printed();
        let outcomes = outcomes(&lines);
        assert_eq!(outcomes.len(), 4);
        let failed: Vec<_> = outcomes.iter().filter(|(_, passed)| !**passed).collect();
        assert_eq!(failed, [(&"a::fails".to_owned(), &false)]);
        assert_eq!(promised(&lines), 4);
        let said = output_of(&lines, "a::fails");
        assert_eq!(said.len(), 2);
        assert_eq!(said[1], "too late");
    }
}

//! Names of hosts, asked for without waiting for name servers that do not answer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::settings::BadInput;

/// For all names of a file together: a service's watchdog waits for it several times over.
const PATIENCE: Duration = Duration::from_secs(5);

/// In which a name is found that needs no name server.
const KNOWN_HERE: Duration = Duration::from_millis(200);

thread_local! {
    /// What was asked for the file that the thread reads, if it reads one.
    static OF_THE_FILE: RefCell<Option<Asked>> = const { RefCell::new(None) };
}

/// The addresses of a host, or why there are none.
type Answer = Result<Vec<IpAddr>, String>;

/// Reads a file: each name in it is asked for once, and all together are waited for no longer than a
/// single one, or twice as long where name servers are silent and others may need none.
pub(crate) fn for_a_file<T>(read: impl FnOnce() -> T) -> T {
    OF_THE_FILE.set(Some(Asked::with(PATIENCE)));
    let found = read();
    OF_THE_FILE.set(None);
    found
}

/// Whether a text can be the name of a host, and is no address.
pub fn is_name(text: &str) -> bool {
    let is_of_name = |it: char| it.is_alphanumeric() || matches!(it, '-' | '.' | '_');
    let is_number = text.chars().all(|it| it.is_ascii_digit() || it == '.');
    !is_number && text.chars().all(is_of_name)
}

/// The addresses of a host by its name, at least one.
///
/// # Errors
/// [`BadInput`] with what the resolver says; or that nobody has answered in time.
pub fn addresses(name: &str) -> Result<Vec<IpAddr>, BadInput> {
    let answer = OF_THE_FILE.with_borrow_mut(|of_the_file| match of_the_file {
        Some(asked) => asked.addresses(name, look_up),
        None => Asked::with(PATIENCE).addresses(name, look_up),
    });
    let why = match answer {
        Ok(found) if found.is_empty() => "the resolver knows of none".to_owned(),
        Ok(found) => return Ok(found),
        Err(why) => why,
    };
    Err(BadInput(format!("the name has no address: {why}")))
}

fn look_up(name: &str) -> Answer {
    // A port has to be given, and is of no meaning.
    let found = (name, 0).to_socket_addrs();
    let found = found.map_err(|error| error.to_string())?;
    Ok(found.map(|it| it.ip()).collect())
}

/// Names that were asked for, and how long others may still be waited for.
#[derive(Debug)]
struct Asked {
    answers: HashMap<String, Answer>,
    patience: Duration,
    left: Duration,
    /// After that, for names that are known here.
    left_here: Duration,
}

impl Asked {
    fn with(patience: Duration) -> Self {
        Self {
            answers: HashMap::new(),
            patience,
            left: patience,
            left_here: patience,
        }
    }

    fn addresses(&mut self, name: &str, look_up: fn(&str) -> Answer) -> Answer {
        if let Some(known) = self.answers.get(name) {
            return known.clone();
        }
        let answer = self.ask(name.to_owned(), look_up);
        self.answers.insert(name.to_owned(), answer.clone());
        answer
    }

    fn ask(&mut self, name: String, look_up: fn(&str) -> Answer) -> Answer {
        let (left, most) = match self.left.is_zero() {
            false => (&mut self.left, self.patience),
            true => (&mut self.left_here, KNOWN_HERE),
        };
        let begun = Instant::now();
        let (answer, answered) = mpsc::channel();
        thread::spawn(move || answer.send(look_up(&name)));
        let answer = answered.recv_timeout(most.min(*left));
        *left = left.saturating_sub(begun.elapsed());
        let late = |_| {
            Err(format!(
                "name servers took more than {} s",
                PATIENCE.as_secs()
            ))
        };
        answer.unwrap_or_else(late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(500);

    /// Asks for 64 names, each twice, and gives how long that took.
    fn ask_for_many(look_up: fn(&str) -> Answer) -> Duration {
        let mut asked = Asked::with(SHORT);
        let begun = Instant::now();
        for number in (0..64).chain(0..64) {
            let _ = asked.addresses(&format!("host{number}"), look_up);
        }
        begun.elapsed()
    }

    #[test]
    fn all_names_of_a_file_are_waited_for_twice_as_long_as_one_at_most() {
        let silent = ask_for_many(|_| {
            thread::sleep(100 * SHORT);
            Ok(Vec::new())
        });
        assert!((SHORT..4 * SHORT).contains(&silent), "{silent:?}");
        let slow = ask_for_many(|_| {
            thread::sleep(SHORT / 5);
            Ok(Vec::new())
        });
        assert!((SHORT..4 * SHORT).contains(&slow), "{slow:?}");
    }

    #[test]
    fn where_nobody_answers_what_is_known_here_is_found() {
        let mut asked = Asked::with(SHORT);
        let silent = asked.addresses("game.example.org", |_| {
            thread::sleep(100 * SHORT);
            Ok(Vec::new())
        });
        assert_eq!(silent.unwrap_err(), "name servers took more than 5 s");
        assert!(asked.addresses("localhost", look_up).is_ok());
    }

    #[test]
    fn a_name_has_the_same_addresses_throughout_a_file() {
        let mut asked = Asked::with(SHORT);
        let first = |_: &str| Ok(vec![IpAddr::from([192, 0, 2, 1])]);
        let second = |_: &str| Err("it is gone".to_owned());
        assert_eq!(asked.addresses("one", first), first(""));
        assert_eq!(asked.addresses("one", second), first(""));
        assert_eq!(asked.addresses("other", second), second(""));
    }
}

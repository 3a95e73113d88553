//! Resolution of host names, with a time-out for name servers that do not answer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::settings::BadInput;

/// Time-out for all names of a file together, several times below a service's watchdog.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Time-out for names that need no name server.
const LOCAL_TIMEOUT: Duration = Duration::from_millis(200);

thread_local! {
    /// Resolver of the file that the thread reads, if any.
    static FILE_RESOLVER: RefCell<Option<Resolver>> = const { RefCell::new(None) };
}

/// Addresses of a host, or the error.
type Answer = Result<Vec<IpAddr>, String>;

/// Reads a file: resolves each of its names once, within [`TIMEOUT`] for all together. If name servers
/// do not answer, names that need none get the same time again.
pub(crate) fn with_file_resolver<T>(read: impl FnOnce() -> T) -> T {
    FILE_RESOLVER.set(Some(Resolver::with_timeout(TIMEOUT)));
    let found = read();
    FILE_RESOLVER.set(None);
    found
}

/// Returns true if the text can be a host name, and is not an address.
pub fn is_name(text: &str) -> bool {
    let is_of_name = |it: char| it.is_alphanumeric() || matches!(it, '-' | '.' | '_');
    let is_number = text.chars().all(|it| it.is_ascii_digit() || it == '.');
    !is_number && text.chars().all(is_of_name)
}

/// Resolves a host name to at least one address.
///
/// # Errors
/// [`BadInput`] with the resolver's error, or after the time-out.
pub fn addresses(name: &str) -> Result<Vec<IpAddr>, BadInput> {
    let answer = FILE_RESOLVER.with_borrow_mut(|resolver| match resolver {
        Some(resolver) => resolver.addresses(name, look_up),
        None => Resolver::with_timeout(TIMEOUT).addresses(name, look_up),
    });
    let why = match answer {
        Ok(found) if found.is_empty() => "the resolver returned none".to_owned(),
        Ok(found) => return Ok(found),
        Err(why) => why,
    };
    Err(BadInput(format!("the name has no address: {why}")))
}

fn look_up(name: &str) -> Answer {
    // The port is required but unused.
    let found = (name, 0).to_socket_addrs();
    let found = found.map_err(|error| error.to_string())?;
    Ok(found.map(|it| it.ip()).collect())
}

/// Cache of resolved names, and the time left for others.
#[derive(Debug)]
struct Resolver {
    answers: HashMap<String, Answer>,
    timeout: Duration,
    left: Duration,
    /// Time left for local names after `left` is used up.
    left_local: Duration,
}

impl Resolver {
    fn with_timeout(timeout: Duration) -> Self {
        Self {
            answers: HashMap::new(),
            timeout,
            left: timeout,
            left_local: timeout,
        }
    }

    fn addresses(&mut self, name: &str, look_up: fn(&str) -> Answer) -> Answer {
        if let Some(answer) = self.answers.get(name) {
            return answer.clone();
        }
        let answer = self.resolve(name.to_owned(), look_up);
        self.answers.insert(name.to_owned(), answer.clone());
        answer
    }

    fn resolve(&mut self, name: String, look_up: fn(&str) -> Answer) -> Answer {
        let (left, timeout) = match self.left.is_zero() {
            false => (&mut self.left, self.timeout),
            true => (&mut self.left_local, LOCAL_TIMEOUT),
        };
        let started_at = Instant::now();
        let (answer, answered) = mpsc::channel();
        thread::spawn(move || answer.send(look_up(&name)));
        let answer = answered.recv_timeout(timeout.min(*left));
        *left = left.saturating_sub(started_at.elapsed());
        let timed_out = |_| {
            Err(format!(
                "name servers took more than {} s",
                TIMEOUT.as_secs()
            ))
        };
        answer.unwrap_or_else(timed_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(500);

    /// Resolves 64 names twice, and returns the elapsed time.
    fn resolve_many(look_up: fn(&str) -> Answer) -> Duration {
        let mut resolver = Resolver::with_timeout(SHORT);
        let started_at = Instant::now();
        for number in (0..64).chain(0..64) {
            let _ = resolver.addresses(&format!("host{number}"), look_up);
        }
        started_at.elapsed()
    }

    #[test]
    fn names_of_a_file_take_at_most_twice_the_timeout() {
        let silent = resolve_many(|_| {
            thread::sleep(100 * SHORT);
            Ok(Vec::new())
        });
        assert!((SHORT..4 * SHORT).contains(&silent), "{silent:?}");
        let slow = resolve_many(|_| {
            thread::sleep(SHORT / 5);
            Ok(Vec::new())
        });
        assert!((SHORT..4 * SHORT).contains(&slow), "{slow:?}");
    }

    #[test]
    fn local_name_resolves_while_name_servers_are_silent() {
        let mut resolver = Resolver::with_timeout(SHORT);
        let silent = resolver.addresses("game.example.org", |_| {
            thread::sleep(100 * SHORT);
            Ok(Vec::new())
        });
        assert_eq!(silent.unwrap_err(), "name servers took more than 5 s");
        assert!(resolver.addresses("localhost", look_up).is_ok());
    }

    #[test]
    fn name_has_the_same_addresses_throughout_a_file() {
        let mut resolver = Resolver::with_timeout(SHORT);
        let first = |_: &str| Ok(vec![IpAddr::from([192, 0, 2, 1])]);
        let second = |_: &str| Err("no such host".to_owned());
        assert_eq!(resolver.addresses("one", first), first(""));
        assert_eq!(resolver.addresses("one", second), first(""));
        assert_eq!(resolver.addresses("other", second), second(""));
    }
}

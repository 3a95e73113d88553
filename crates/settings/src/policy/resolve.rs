//! Names of hosts, asked for without waiting for name servers that do not answer.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Which a service's watchdog waits for several times over.
const PATIENCE: Duration = Duration::from_secs(5);

/// In which a name is found that needs no name server.
const KNOWN_HERE: Duration = Duration::from_millis(200);

/// When name servers did not answer last: a file's other names are not asked for in vain.
static SILENT_AT: Mutex<Option<Instant>> = Mutex::new(None);

/// The addresses of a host by its name.
///
/// # Errors
/// What the resolver says; or that nobody has answered in time.
pub(super) fn addresses(name: &str) -> io::Result<Vec<IpAddr>> {
    let name = name.to_owned();
    // A port has to be given, and is of no meaning.
    within_patience(&SILENT_AT, move || {
        let found = (name.as_str(), 0).to_socket_addrs()?;
        Ok(found.map(|it| it.ip()).collect())
    })
}

fn within_patience<T: Send + 'static>(
    silent_at: &Mutex<Option<Instant>>,
    ask: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let mut silent_at = silent_at.lock().unwrap_or_else(PoisonError::into_inner);
    let is_silent = silent_at.is_some_and(|at| at.elapsed() < PATIENCE);
    let (answer, answered) = mpsc::channel();
    let patience = if is_silent { KNOWN_HERE } else { PATIENCE };
    let asking = thread::spawn(move || {
        let _ = answer.send(ask());
    });
    match answered.recv_timeout(patience) {
        Ok(answer) => {
            *silent_at = None;
            let _ = asking.join();
            answer
        }
        Err(_) => {
            if !is_silent {
                *silent_at = Some(Instant::now());
            }
            let why = format!("no answer within {} s", PATIENCE.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }
    }
}

#[test]
fn where_nobody_answers_all_names_together_wait_no_longer_than_one() {
    let began = Instant::now();
    let silent_at = Mutex::new(None);
    for _ in 0..3 {
        let asked = within_patience(&silent_at, || {
            thread::sleep(10 * PATIENCE);
            Ok(())
        });
        assert_eq!(asked.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
    assert!((PATIENCE..3 * PATIENCE).contains(&began.elapsed()));
    assert!(addresses("localhost").is_ok());
}

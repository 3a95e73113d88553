//! HTTP for one small page. Whoever connects may be anybody of this host: it takes no more than its
//! share of memory and descriptors, and holds nobody up.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{Shutdown, shutdown};
use pillion_bpf::host::interruption::poll;

/// Connections at a time. One more takes the place of that which has been there longest.
const CONNECTIONS: usize = 16;

/// Bytes that the head of a request may have.
const HEAD: usize = 8192;

/// Header lines that it may have.
const HEADERS: usize = 64;

/// Bytes behind the head that are read, and are of no account.
const REST: usize = 64 << 10;

/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is asked for.
pub struct Asked<'a> {
    pub method: &'a str,
    /// Without the query.
    pub path: &'a str,
}

/// What is answered.
pub struct Answer {
    /// As in `404 Not Found`.
    pub status: &'static str,
    pub kind: &'static str,
    pub body: String,
}

impl Answer {
    /// A line of plain text.
    pub fn line(status: &'static str, line: &str) -> Self {
        Self {
            status,
            kind: "text/plain; charset=utf-8",
            body: format!("{line}\n"),
        }
    }

    fn into_bytes(self, with_body: bool) -> Vec<u8> {
        let Self { status, kind, body } = self;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n"
        );
        let body = if with_body { body } else { String::new() };
        (head + &body).into_bytes()
    }
}

/// A socket that connections come to.
pub trait Listen: AsFd {
    type Stream: Read + Write + AsFd;

    /// The next one, which never blocks.
    fn next(&self) -> io::Result<Self::Stream>;
}

impl Listen for TcpListener {
    type Stream = TcpStream;

    fn next(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept()?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}

impl Listen for UnixListener {
    type Stream = UnixStream;

    fn next(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.accept()?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}

/// Answers whoever connects to a listener that never blocks.
pub fn serve<L: Listen>(listener: &L, answer: impl Fn(&Asked) -> Answer) -> ! {
    let mut connections: Vec<Connection<L::Stream>> = Vec::new();
    loop {
        let ready = wait(listener, &connections);
        // Those that are done, or have failed, or take too long, go.
        let mut ready_ones = ready.connections.into_iter();
        connections.retain_mut(|it| {
            let is_ready = ready_ones.next().unwrap_or_default();
            let goes_on = !is_ready || it.go_on(&answer).is_ok_and(|is_done| !is_done);
            goes_on && it.since.elapsed() < PATIENCE
        });
        if ready.listener {
            match listener.next() {
                Ok(stream) => {
                    if connections.len() == CONNECTIONS {
                        connections.remove(0);
                    }
                    connections.push(Connection::new(stream));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // As a rule a want of descriptors or memory, which others cause and end.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

struct Ready {
    listener: bool,
    connections: Vec<bool>,
}

fn wait<L: Listen>(listener: &L, connections: &[Connection<L::Stream>]) -> Ready {
    let waits_for = connections
        .iter()
        .map(|it| PollFd::new(it.stream.as_fd(), it.waits_for()));
    let listened = PollFd::new(listener.as_fd(), PollFlags::POLLIN);
    let mut all: Vec<_> = [listened].into_iter().chain(waits_for).collect();
    let oldest = connections.first();
    let left = oldest.map(|it| PATIENCE.saturating_sub(it.since.elapsed()));
    // Out of memory, the only error of a valid call: nothing is ready.
    let _ = poll(&mut all, left);
    let mut ready = all.iter().map(|it| it.any().unwrap_or_default());
    Ready {
        listener: ready.next().unwrap_or_default(),
        connections: ready.collect(),
    }
}

struct Connection<S> {
    stream: S,
    since: Instant,
    /// What has come of the request.
    head: Vec<u8>,
    state: State,
}

enum State {
    /// The request's head is yet to come whole.
    Asked,
    /// So much is left to send.
    Answering(Vec<u8>),
    /// All has been sent. Were the connection closed while something of the request is unread, as a
    /// body, the reset could overtake the answer; so much more of it is read.
    Answered(usize),
}

impl<S: Read + Write + AsFd> Connection<S> {
    fn new(stream: S) -> Self {
        Self {
            stream,
            since: Instant::now(),
            head: Vec::new(),
            state: State::Asked,
        }
    }

    fn waits_for(&self) -> PollFlags {
        match self.state {
            State::Answering(_) => PollFlags::POLLOUT,
            State::Asked | State::Answered(_) => PollFlags::POLLIN,
        }
    }

    /// Reads or writes what can be; true once nothing more is to be done.
    fn go_on(&mut self, answer: impl Fn(&Asked) -> Answer) -> io::Result<bool> {
        self.try_to_go_on(answer)
            .or_else(|error| match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(false),
                _ => Err(error),
            })
    }

    fn try_to_go_on(&mut self, answer: impl Fn(&Asked) -> Answer) -> io::Result<bool> {
        let mut buffer = [0; 2048];
        match &mut self.state {
            State::Asked => {
                let count = self.stream.read(&mut buffer)?;
                self.head.extend_from_slice(&buffer[..count]);
                let answer = answer_to(&self.head, answer);
                self.state = answer.map_or(State::Asked, State::Answering);
                Ok(count == 0)
            }
            State::Answering(left) => {
                let sent = self.stream.write(left)?;
                left.drain(..sent);
                if left.is_empty() {
                    shutdown(self.stream.as_fd().as_raw_fd(), Shutdown::Write)?;
                    self.state = State::Answered(REST);
                }
                Ok(false)
            }
            State::Answered(rest) => {
                let count = self.stream.read(&mut buffer)?;
                *rest = rest.saturating_sub(count);
                Ok(count == 0 || *rest == 0)
            }
        }
    }
}

/// The answer to a request that begins so, once its head is whole.
fn answer_to(head: &[u8], answer: impl Fn(&Asked) -> Answer) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let answer = match request.parse(head) {
        Ok(httparse::Status::Partial) if head.len() <= HEAD => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            let status = "431 Request Header Fields Too Large";
            Answer::line(status, "the request's head is too large")
        }
        Ok(httparse::Status::Complete(_)) => {
            let method = request.method.unwrap_or_default();
            let path = request.path.unwrap_or_default();
            let path = origin_form(path.split('?').next().unwrap_or_default());
            answer(&Asked { method, path })
        }
        Err(_) => Answer::line("400 Bad Request", "this is no request of HTTP"),
    };
    Some(answer.into_bytes(request.method != Some("HEAD")))
}

/// The path of what is asked for, also where it was asked for with the server's name before it, as
/// proxies do (RFC 9112, section 3.2.2).
fn origin_form(target: &str) -> &str {
    match target.strip_prefix("http://") {
        None => target,
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_whole_though_something_of_the_request_was_not_read() {
        let (mut client, stream) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut connection = Connection::new(stream);
        let answers = std::thread::spawn(move || {
            let answer = |_: &Asked| Answer::line("405 Method Not Allowed", "no");
            while !connection.go_on(answer).unwrap() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let body = "x".repeat(10_000);
        let request = format!("POST /metrics HTTP/1.1\r\nContent-Length: 10000\r\n\r\n{body}");
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("\r\n\r\nno\n"), "{answer}");
        drop(client);
        answers.join().unwrap();
    }

    #[test]
    fn a_path_may_have_the_servers_name_before_it() {
        for (target, path) in [
            ("/metrics", "/metrics"),
            ("http://[::1]:9100/metrics", "/metrics"),
            ("http://localhost", "/"),
        ] {
            assert_eq!(origin_form(target), path);
        }
    }

    fn answered(head: &str) -> Option<String> {
        let answer =
            |asked: &Asked| Answer::line("200 OK", &format!("{} {}", asked.method, asked.path));
        answer_to(head.as_bytes(), answer).map(|it| String::from_utf8(it).unwrap())
    }

    #[test]
    fn a_request_is_answered_once_its_head_is_whole_and_what_is_none_at_once() {
        let whole = answered("GET /metrics?a=b HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert!(whole.starts_with("HTTP/1.1 200 OK\r\n"), "{whole}");
        assert!(
            whole.ends_with("\r\nContent-Length: 13\r\nConnection: close\r\n\r\nGET /metrics\n")
        );
        let head = answered("HEAD /metrics HTTP/1.0\r\n\r\n").unwrap();
        assert!(head.contains("\r\nContent-Length: 14\r\n") && head.ends_with("\r\n\r\n"));
        assert_eq!(answered("GET /metrics HTTP/1.1\r\nHost"), None);
        for (head, status) in [
            ("\0\0", "400 "),
            ("GET /metrics\r\n\r\n", "400 "),
            (&format!("GET /{} HTTP/1.1", "a".repeat(HEAD)), "431 "),
            (
                &format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(65)),
                "431 ",
            ),
        ] {
            let answer = answered(head).unwrap();
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{answer}"
            );
        }
    }
}

//! HTTP server for one small page. Any user of this host can connect, so memory, descriptors and time
//! of each connection are limited.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{Shutdown, shutdown};
use pillion_bpf::host::interruption::poll;

/// Maximum number of connections. A further one replaces the oldest.
const MAX_CONNECTIONS: usize = 16;

/// Maximum bytes of a request's head.
const MAX_HEAD: usize = 8192;

/// Maximum header lines of a request.
const MAX_HEADERS: usize = 64;

/// Maximum request-body bytes to read and discard.
const MAX_BODY: usize = 64 << 10;

/// Time-out of a connection.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A parsed request.
pub struct Request<'a> {
    pub method: &'a str,
    /// Without the query.
    pub path: &'a str,
}

/// A response.
pub struct Response {
    /// As in `404 Not Found`.
    pub status: &'static str,
    pub content_type: &'static str,
    pub body: String,
}

impl Response {
    /// A line of plain text.
    pub fn line(status: &'static str, line: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: format!("{line}\n"),
        }
    }

    fn into_bytes(self, with_body: bool) -> Vec<u8> {
        let Self {
            status,
            content_type,
            body,
        } = self;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n"
        );
        let body = if with_body { body } else { String::new() };
        (head + &body).into_bytes()
    }
}

/// A listening socket.
pub trait Listen: AsFd {
    type Stream: Read + Write + AsFd;

    /// Accepts a connection, as a non-blocking stream.
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

/// Serves a non-blocking listener forever.
pub fn serve<L: Listen>(listener: &L, answer: impl Fn(&Request) -> Response) -> ! {
    let mut connections: Vec<Connection<L::Stream>> = Vec::new();
    loop {
        let ready = wait(listener, &connections);
        // Removes connections that are complete, failed or timed out.
        let mut ready_ones = ready.connections.into_iter();
        connections.retain_mut(|it| {
            let is_ready = ready_ones.next().unwrap_or_default();
            let remains = !is_ready || it.advance(&answer).is_ok_and(|is_done| !is_done);
            remains && it.since.elapsed() < TIMEOUT
        });
        if ready.listener {
            match listener.next() {
                Ok(stream) => {
                    if connections.len() == MAX_CONNECTIONS {
                        connections.remove(0);
                    }
                    connections.push(Connection::new(stream));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Usually a temporary lack of descriptors or memory.
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
    let listening = PollFd::new(listener.as_fd(), PollFlags::POLLIN);
    let mut all: Vec<_> = [listening].into_iter().chain(waits_for).collect();
    let oldest = connections.first();
    let left = oldest.map(|it| TIMEOUT.saturating_sub(it.since.elapsed()));
    // The only error of a valid call is lack of memory: nothing is ready.
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
    /// Received part of the request.
    head: Vec<u8>,
    state: State,
}

enum State {
    /// The request's head is incomplete.
    Receiving,
    /// Unsent part of the response.
    Sending(Vec<u8>),
    /// The response is sent. Closing with unread data would send a reset, which could overtake the
    /// response; so up to this many bytes of the request are still read.
    Draining(usize),
}

impl<S: Read + Write + AsFd> Connection<S> {
    fn new(stream: S) -> Self {
        Self {
            stream,
            since: Instant::now(),
            head: Vec::new(),
            state: State::Receiving,
        }
    }

    fn waits_for(&self) -> PollFlags {
        match self.state {
            State::Sending(_) => PollFlags::POLLOUT,
            State::Receiving | State::Draining(_) => PollFlags::POLLIN,
        }
    }

    /// Reads or writes without blocking; returns true when the connection is complete.
    fn advance(&mut self, answer: impl Fn(&Request) -> Response) -> io::Result<bool> {
        self.try_advance(answer)
            .or_else(|error| match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(false),
                _ => Err(error),
            })
    }

    fn try_advance(&mut self, answer: impl Fn(&Request) -> Response) -> io::Result<bool> {
        let mut buffer = [0; 2048];
        match &mut self.state {
            State::Receiving => {
                let count = self.stream.read(&mut buffer)?;
                self.head.extend_from_slice(&buffer[..count]);
                let answer = response_to(&self.head, answer);
                self.state = answer.map_or(State::Receiving, State::Sending);
                Ok(count == 0)
            }
            State::Sending(left) => {
                let sent = self.stream.write(left)?;
                left.drain(..sent);
                if left.is_empty() {
                    shutdown(self.stream.as_fd().as_raw_fd(), Shutdown::Write)?;
                    self.state = State::Draining(MAX_BODY);
                }
                Ok(false)
            }
            State::Draining(rest) => {
                let count = self.stream.read(&mut buffer)?;
                *rest = rest.saturating_sub(count);
                Ok(count == 0 || *rest == 0)
            }
        }
    }
}

/// Returns the response once the head is complete or invalid.
fn response_to(head: &[u8], answer: impl Fn(&Request) -> Response) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let answer = match request.parse(head) {
        Ok(httparse::Status::Partial) if head.len() <= MAX_HEAD => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            let status = "431 Request Header Fields Too Large";
            Response::line(status, "the request's head is too large")
        }
        Ok(httparse::Status::Complete(_)) => {
            let method = request.method.unwrap_or_default();
            let path = request.path.unwrap_or_default();
            let path = origin_form(path.split('?').next().unwrap_or_default());
            answer(&Request { method, path })
        }
        Err(_) => Response::line("400 Bad Request", "not an HTTP request"),
    };
    Some(answer.into_bytes(request.method != Some("HEAD")))
}

/// Returns the path of a request target, also in absolute form, as proxies send it (RFC 9112, section
/// 3.2.2).
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
    fn response_arrives_whole_despite_an_unread_body() {
        let (mut client, stream) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut connection = Connection::new(stream);
        let answers = std::thread::spawn(move || {
            let answer = |_: &Request| Response::line("405 Method Not Allowed", "no");
            while !connection.advance(answer).unwrap() {
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
    fn absolute_form_of_target_is_accepted() {
        for (target, path) in [
            ("/metrics", "/metrics"),
            ("http://[::1]:9100/metrics", "/metrics"),
            ("http://localhost", "/"),
        ] {
            assert_eq!(origin_form(target), path);
        }
    }

    fn response(head: &str) -> Option<String> {
        let answer = |request: &Request| {
            Response::line("200 OK", &format!("{} {}", request.method, request.path))
        };
        response_to(head.as_bytes(), answer).map(|it| String::from_utf8(it).unwrap())
    }

    #[test]
    fn response_follows_complete_head_or_invalid_request() {
        let whole = response("GET /metrics?a=b HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert!(whole.starts_with("HTTP/1.1 200 OK\r\n"), "{whole}");
        assert!(
            whole.ends_with("\r\nContent-Length: 13\r\nConnection: close\r\n\r\nGET /metrics\n")
        );
        let head = response("HEAD /metrics HTTP/1.0\r\n\r\n").unwrap();
        assert!(head.contains("\r\nContent-Length: 14\r\n") && head.ends_with("\r\n\r\n"));
        assert_eq!(response("GET /metrics HTTP/1.1\r\nHost"), None);
        for (head, status) in [
            ("\0\0", "400 "),
            ("GET /metrics\r\n\r\n", "400 "),
            (&format!("GET /{} HTTP/1.1", "a".repeat(MAX_HEAD)), "431 "),
            (
                &format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(65)),
                "431 ",
            ),
        ] {
            let answer = response(head).unwrap();
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{answer}"
            );
        }
    }
}

//! Endpoints of the soak's connections. Their processes run this test executable, as ignored tests.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};
use std::{env, io, thread};

use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::Linger;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::events::{ByteCounts, EndpointEvent};
use super::plan::{Kind, Plan, Side, direction_id, fill, first_mismatch};

/// Address of the server.
pub const SERVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2)), 7700);

/// Environment variable with a client's task.
const TASK: &str = "PILLION_SOAK_CLIENT";

static STOP: AtomicBool = AtomicBool::new(false);

/// Task of a client process.
#[derive(Debug, Clone, Copy)]
pub struct ClientTask {
    /// Seed for kinds and times.
    pub seed: u64,
    /// Average number of connections started per hour.
    pub per_hour: u32,
    /// Connections started immediately that last as long as the client.
    pub long_lived: u32,
    /// Seconds after which the client stops by itself.
    pub seconds: u32,
}

impl FromStr for ClientTask {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split(' ');
        let mut next = || words.next().unwrap_or_default();
        Ok(Self {
            seed: next().parse()?,
            per_hour: next().parse()?,
            long_lived: next().parse()?,
            seconds: next().parse()?,
        })
    }
}

/// Returns the command line of an endpoint process.
pub fn endpoint_command(end: &str) -> [String; 5] {
    let endpoint_command = env::current_exe().expect("this program");
    let test = format!("soak::endpoint::{end}");
    let words = [
        endpoint_command.to_str().expect("UTF-8"),
        "--ignored",
        "--exact",
    ];
    let [endpoint_command, ignored, exact] = words.map(str::to_owned);
    [
        endpoint_command,
        ignored,
        exact,
        "--nocapture".to_owned(),
        test,
    ]
}

/// Passes a task to a client that `command` starts directly or indirectly.
pub fn set_task(command: &mut Command, task: ClientTask) {
    let ClientTask {
        seed,
        per_hour,
        long_lived,
        seconds,
    } = task;
    command.env(TASK, format!("{seed} {per_hour} {long_lived} {seconds}"));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
}

extern "C" fn stop(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// Stops the process cleanly on SIGTERM, SIGINT and SIGHUP, also if repeated.
fn stop_on_signals() {
    for stop_signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        // SAFETY: the handler stores a flag and does nothing else.
        unsafe { signal(stop_signal, SigHandler::Handler(stop)) }.expect("a handler");
    }
}

fn print_event(event: &EndpointEvent) {
    println!("{event}");
}

fn run_end(connection: u64, side: Side, socket: &TcpStream, stop: &AtomicBool) {
    match exchange(socket, connection, side, stop) {
        Ok(account) => print_event(&EndpointEvent::Ended(connection, side, account)),
        Err(violation) => print_event(&broken(connection, &violation)),
    }
}

fn broken(connection: u64, violation: &str) -> EndpointEvent {
    let kind = Kind::of(connection).name();
    EndpointEvent::Broken(format!("connection {connection} ({kind}): {violation}"))
}

#[test]
#[ignore = "one end of the soak's connections"]
fn client_process() {
    stop_on_signals();
    let task: ClientTask = env::var(TASK).expect(TASK).parse().expect(TASK);
    let random = &mut Pcg64::seed_from_u64(task.seed);
    let end = Instant::now() + Duration::from_secs(task.seconds.into());
    let is_over = || STOP.load(Ordering::Relaxed) || Instant::now() > end;
    thread::scope(|scope| {
        for _ in 0..task.long_lived {
            open_connection(scope, Kind::Long.number(random));
        }
        while !is_over() {
            open_connection(scope, Kind::choose(random).number(random));
            let mean = 3600.0 / f64::from(task.per_hour);
            let pause = Duration::from_secs_f64(mean * random.random_range(0.0..2.0));
            let next = Instant::now() + pause;
            while !is_over() && Instant::now() < next {
                thread::sleep(Duration::from_millis(20));
            }
        }
        STOP.store(true, Ordering::Relaxed);
    });
}

fn open_connection<'scope>(scope: &'scope Scope<'scope, '_>, connection: u64) {
    scope.spawn(move || {
        let connected = TcpStream::connect_timeout(&SERVER, TIMEOUT).and_then(|mut socket| {
            socket.write_all(&connection.to_be_bytes())?;
            Ok(socket)
        });
        match connected {
            Ok(socket) => {
                print_event(&EndpointEvent::Opened(connection));
                run_end(connection, Side::Client, &socket, &STOP);
            }
            Err(error) => print_event(&broken(connection, &format!("connect: {error}"))),
        }
    });
}

#[test]
#[ignore = "the other end of the soak's connections"]
fn server_process() {
    stop_on_signals();
    let listener = TcpListener::bind(SERVER).expect("the address");
    listener.set_nonblocking(true).expect("O_NONBLOCK");
    print_event(&EndpointEvent::Listening);
    thread::scope(|scope| {
        while !STOP.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((socket, _)) => drop(scope.spawn(move || serve(socket))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(error) => print_event(&EndpointEvent::Broken(format!("accept: {error}"))),
            }
        }
    });
}

fn serve(mut socket: TcpStream) {
    /// The server follows the client's plan and stops only with it.
    static NEVER_STOP: AtomicBool = AtomicBool::new(false);
    let mut connection = [0; 8];
    let read = socket
        .set_nonblocking(false)
        .and_then(|()| socket.set_read_timeout(Some(TIMEOUT)))
        .and_then(|()| socket.read_exact(&mut connection));
    match read {
        Ok(()) => {
            let connection = u64::from_be_bytes(connection);
            run_end(connection, Side::Server, &socket, &NEVER_STOP);
        }
        // The client reset the connection immediately and has reported it.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => print_event(&EndpointEvent::Broken(format!(
            "an accepted connection: {error}"
        ))),
    }
}

/// A connection without progress for this long counts as lost; TCP's back-off on this path is
/// shorter.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Poll interval of a waiting end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

struct Endpoint<'a> {
    connection: u64,
    side: Side,
    socket: &'a TcpStream,
    plan: Plan,
    /// The whole process is to stop.
    stop: &'a AtomicBool,
    /// The other end has closed, so an unlimited sender has to stop.
    peer_closed: AtomicBool,
    /// This end is about to reset the connection.
    is_resetting: AtomicBool,
}

/// Sends and receives until both directions have ended. An error describes a violation.
pub fn exchange(
    socket: &TcpStream,
    connection: u64,
    side: Side,
    stop: &AtomicBool,
) -> Result<ByteCounts, String> {
    let end = Endpoint {
        connection,
        side,
        socket,
        plan: Plan::of(connection),
        stop,
        peer_closed: AtomicBool::new(false),
        is_resetting: AtomicBool::new(false),
    };
    let account = end
        .exchange()
        .map_err(|error| format!("{side:?}: {error}"))?;
    if end.is_resetting.into_inner() {
        let immediate = libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        setsockopt(socket, Linger, &immediate).map_err(|errno| errno.to_string())?;
    }
    Ok(account)
}

impl Endpoint<'_> {
    fn exchange(&self) -> Result<ByteCounts, String> {
        let set = || -> io::Result<()> {
            self.socket.set_nodelay(true)?;
            self.socket.set_read_timeout(Some(POLL_INTERVAL))?;
            self.socket.set_write_timeout(Some(TIMEOUT))
        };
        set().map_err(|error| format!("socket options: {error}"))?;
        thread::scope(|scope| {
            let sender = scope.spawn(|| self.send());
            let received = self.receive();
            if received.is_err() {
                self.peer_closed.store(true, Ordering::Relaxed);
                let _ = self.socket.shutdown(Shutdown::Both);
            }
            let sent = sender.join().map_err(|_| "its sender panicked")?;
            Ok(ByteCounts {
                received: received?,
                sent: sent?,
            })
        })
    }

    fn send(&self) -> Result<u64, String> {
        let send_plan = self.plan.for_side(self.side);
        let pattern = direction_id(self.connection, self.side);
        let random = &mut Pcg64::seed_from_u64(pattern);
        let mut sent = 0;
        let mut message = 0;
        while send_plan.messages.is_none_or(|messages| message < messages) {
            let (gap, bytes) = send_plan.next(random);
            if self.is_over_after(gap) {
                break;
            }
            let mut data = vec![0; bytes];
            fill(pattern, sent, &mut data);
            sent += bytes as u64;
            match (&mut &*self.socket).write_all(&data) {
                Ok(()) => message += 1,
                Err(error) if self.is_allowed(&error) => return Ok(sent),
                Err(error) => return Err(format!("after {sent} bytes sent: {error}")),
            }
        }
        if self.plan.resets == Some(self.side) {
            self.is_resetting.store(true, Ordering::Relaxed);
            return Ok(sent);
        }
        match self.socket.shutdown(Shutdown::Write) {
            Err(error) if !self.is_allowed(&error) => Err(format!("shutdown: {error}")),
            _ => Ok(sent),
        }
    }

    fn is_over_after(&self, gap: Duration) -> bool {
        let end = Instant::now() + gap;
        loop {
            if self.stop.load(Ordering::Relaxed) || self.peer_closed.load(Ordering::Relaxed) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            thread::sleep(left.min(POLL_INTERVAL));
        }
    }

    fn receive(&self) -> Result<u64, String> {
        let pattern = direction_id(self.connection, self.side.other());
        let mut buffer = vec![0; 65_536];
        let mut received = 0;
        let mut last = Instant::now();
        while !self.is_resetting.load(Ordering::Relaxed) {
            match (&mut &*self.socket).read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    if let Some(first_mismatch) =
                        first_mismatch(pattern, received, &buffer[..count])
                    {
                        return Err(first_mismatch);
                    }
                    received += count as u64;
                    last = Instant::now();
                }
                Err(error) if is_timeout(&error) => {
                    if last.elapsed() > TIMEOUT {
                        return Err(format!("no data for {TIMEOUT:?} after byte {received}"));
                    }
                }
                Err(error) if self.is_allowed(&error) => break,
                Err(error) => return Err(format!("after {received} bytes received: {error}")),
            }
        }
        // A half that was closed as planned is no reason to stop.
        let other = self.plan.for_side(self.side.other());
        let own = self.plan.for_side(self.side);
        if other.messages.is_none() || own.messages.is_none() {
            self.peer_closed.store(true, Ordering::Relaxed);
        }
        Ok(received)
    }

    fn is_allowed(&self, error: &io::Error) -> bool {
        use ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
        let is_reset = matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected);
        self.plan.resets.is_some() && is_reset
    }
}

fn is_timeout(error: &io::Error) -> bool {
    use ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

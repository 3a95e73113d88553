//! Endpoints of the soak's connections. Their processes run this test executable, as ignored tests.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};
use std::{env, str::FromStr};

use nix::sys::signal::{SigHandler, Signal, signal};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::plan::{Kind, Side};
use super::said::Said;
use super::talk::{PATIENCE, talk};

/// Address of the server.
pub const SERVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2)), 7700);

/// Environment variable with a client's task.
const TASK: &str = "PILLION_SOAK_CLIENT";

static STOP: AtomicBool = AtomicBool::new(false);

/// Task of a client process.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    /// Seed for kinds and times.
    pub seed: u64,
    /// Average number of connections started per hour.
    pub hourly: u32,
    /// Connections started immediately that last as long as the client.
    pub long: u32,
    /// Seconds after which the client stops by itself.
    pub seconds: u32,
}

impl FromStr for Task {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split(' ');
        let mut next = || words.next().unwrap_or_default();
        Ok(Self {
            seed: next().parse()?,
            hourly: next().parse()?,
            long: next().parse()?,
            seconds: next().parse()?,
        })
    }
}

/// Returns the command line of an endpoint process.
pub fn this(end: &str) -> [String; 5] {
    let this = env::current_exe().expect("this program");
    let test = format!("soak::ends::{end}");
    let words = [this.to_str().expect("UTF-8"), "--ignored", "--exact"];
    let [this, ignored, exact] = words.map(str::to_owned);
    [this, ignored, exact, "--nocapture".to_owned(), test]
}

/// Passes a task to a client that `command` starts directly or indirectly.
pub fn give(command: &mut Command, task: Task) {
    let Task {
        seed,
        hourly,
        long,
        seconds,
    } = task;
    command.env(TASK, format!("{seed} {hourly} {long} {seconds}"));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
}

extern "C" fn stop(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// Stops the process cleanly on SIGTERM, SIGINT and SIGHUP, also if repeated.
fn stop_on_signals() {
    for asks in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        // SAFETY: the handler stores a flag and does nothing else.
        unsafe { signal(asks, SigHandler::Handler(stop)) }.expect("a handler");
    }
}

fn say(said: &Said) {
    println!("{said}");
}

fn report(connection: u64, side: Side, socket: &TcpStream, stop: &AtomicBool) {
    match talk(socket, connection, side, stop) {
        Ok(account) => say(&Said::Ended(connection, side, account)),
        Err(what) => say(&broken(connection, &what)),
    }
}

fn broken(connection: u64, what: &str) -> Said {
    let kind = Kind::of(connection).name();
    Said::Broken(format!("connection {connection} ({kind}): {what}"))
}

#[test]
#[ignore = "one end of the soak's connections"]
fn a_client() {
    stop_on_signals();
    let task: Task = env::var(TASK).expect(TASK).parse().expect(TASK);
    let random = &mut Pcg64::seed_from_u64(task.seed);
    let end = Instant::now() + Duration::from_secs(task.seconds.into());
    let is_over = || STOP.load(Ordering::Relaxed) || Instant::now() > end;
    thread::scope(|scope| {
        for _ in 0..task.long {
            begin(scope, Kind::Long.number(random));
        }
        while !is_over() {
            begin(scope, Kind::draw(random).number(random));
            let mean = 3600.0 / f64::from(task.hourly);
            let pause = Duration::from_secs_f64(mean * random.random_range(0.0..2.0));
            let next = Instant::now() + pause;
            while !is_over() && Instant::now() < next {
                thread::sleep(Duration::from_millis(20));
            }
        }
        STOP.store(true, Ordering::Relaxed);
    });
}

fn begin<'scope>(scope: &'scope Scope<'scope, '_>, connection: u64) {
    scope.spawn(move || {
        let connected = TcpStream::connect_timeout(&SERVER, PATIENCE).and_then(|mut socket| {
            socket.write_all(&connection.to_be_bytes())?;
            Ok(socket)
        });
        match connected {
            Ok(socket) => {
                say(&Said::Opened(connection));
                report(connection, Side::Client, &socket, &STOP);
            }
            Err(error) => say(&broken(connection, &format!("connect: {error}"))),
        }
    });
}

#[test]
#[ignore = "the other end of the soak's connections"]
fn a_server() {
    stop_on_signals();
    let listener = TcpListener::bind(SERVER).expect("the address");
    listener.set_nonblocking(true).expect("O_NONBLOCK");
    say(&Said::Listening);
    thread::scope(|scope| {
        while !STOP.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((socket, _)) => drop(scope.spawn(move || serve(socket))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(error) => say(&Said::Broken(format!("accept: {error}"))),
            }
        }
    });
}

fn serve(mut socket: TcpStream) {
    /// The server follows the client's plan and stops only with it.
    static GO_ON: AtomicBool = AtomicBool::new(false);
    let mut connection = [0; 8];
    let read = socket
        .set_nonblocking(false)
        .and_then(|()| socket.set_read_timeout(Some(PATIENCE)))
        .and_then(|()| socket.read_exact(&mut connection));
    match read {
        Ok(()) => {
            let connection = u64::from_be_bytes(connection);
            report(connection, Side::Server, &socket, &GO_ON);
        }
        // The client reset the connection immediately and has reported it.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => say(&Said::Broken(format!("an accepted connection: {error}"))),
    }
}


use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::books::Books;
use super::crowd::Member;
use super::ends::Task;
use super::field::{Field, News};
use super::flat::Samples;
use super::ground::Ground;
use super::harm::Messages;
use super::memory::Sample;
use super::remains::Remains;
use super::ride::{CLIENTS, Ride, draw};
use super::talk::PATIENCE;
use super::tally::Tally;
use super::weather::Weather;

/// Duration and event rates of a soak.
#[derive(Debug, Clone, Copy)]
pub struct Length {
    pub time: Duration,
    /// Connections per hour of each of the two long-lived clients.
    pub connections_hourly: u32,
    /// Pillions per hour. About a fifth run their own client, with a dozen connections.
    pub pillions_hourly: u32,
    /// Device changes per hour.
    pub gusts_hourly: u32,
}

/// Connections of each client that last as long as the client.
const LONG: u32 = 5;

/// Interval between memory samples.
const SAMPLE: Duration = Duration::from_secs(1);

/// Interval between progress reports.
const MINUTE: Duration = Duration::from_secs(60);

/// How long grown memory may take to shrink while nothing new starts. On slow machines more
/// pillions run at the same time, and the kernel frees their memory later.
const CALM: Duration = Duration::from_secs(30);

/// Maximum bytes of kernel memory left after all processes have exited; the kernel retains some for
/// each.
const LEFT: u64 = 2 << 20;

struct Watch {
    length: Length,
    field: Field,
    news: Receiver<News>,
    members: Vec<Member>,
    books: Books,
    tally: Tally,
    samples: Samples,
    kernel: Messages,
    weather: Weather,
    /// Pillions started so far, and those still running.
    begun: u64,
    riding: u64,
}

/// Runs the soak and prints the summary. An error describes a violation.
pub fn soak(length: Length, seed: u64) -> Result<(), String> {
    let ground = Ground::create(seed).map_err(|error| format!("create the environment: {error}"))?;
    let before = Remains::now(&ground);
    let (tell, news) = channel();
    let mut watch = Watch {
        length,
        field: Field::new(ground, tell),
        news,
        members: Vec::new(),
        books: Books::default(),
        tally: Tally::default(),
        samples: Samples::default(),
        kernel: Messages::from_now_on(),
        weather: Weather::begin().map_err(|error| format!("device churn: {error}"))?,
        begun: 0,
        riding: 0,
    };
    let random = &mut Pcg64::seed_from_u64(seed);
    let stays = watch.begin(random)?;
    watch.pass(random, stays)?;
    watch.field.end();
    watch.end(&before)?;
    let path = watch.field.ground.pair.path.ledger();
    let table = watch
        .tally
        .table(&watch.books, &path, &watch.samples, length.samples());
    print!("{}", table.to_text());
    let tally = &watch.tally;
    if tally.bundles == 0 || tally.connections == 0 {
        return Err("nothing was bundled".to_owned());
    }
    Ok(())
}

/// Returns a random time until the next of `times` events per hour.
fn hourly(times: f64, random: &mut Pcg64) -> Duration {
    Duration::from_secs_f64(3600.0 / times * random.random_range(0.0..2.0))
}

impl Length {
    /// Returns the total number of memory samples.
    fn samples(self) -> usize {
        (self.time.as_secs_f64() / SAMPLE.as_secs_f64()) as usize
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.field.end();
        self.field.ground.clear();
    }
}

impl Watch {
    /// Starts the server, the clients and the long-lived pillion, whose PID it returns.
    fn begin(&mut self, random: &mut Pcg64) -> Result<u32, String> {
        let server = Member::server(&self.field)?;
        self.members.push(server);
        for name in CLIENTS {
            let task = Task {
                seed: random.random(),
                hourly: self.length.connections_hourly,
                long: LONG,
                seconds: u32::MAX,
            };
            let client = Member::client(&self.field, name, task)?;
            self.members.push(client);
        }
        self.ride(Ride::that_stays());
        loop {
            if let Some(process) = self.hear(PATIENCE)? {
                return Ok(process);
            }
        }
    }

    fn ride(&mut self, ride: Ride) {
        self.begun += 1;
        self.riding += 1;
        self.field.ride(ride, self.begun);
    }

    /// Waits for an event and processes it. Returns the PID of a pillion that has just attached.
    fn hear(&mut self, patience: Duration) -> Result<Option<u32>, String> {
        match self.news.recv_timeout(patience) {
            Ok(News::Said(said)) => self.books.take(said)?,
            Ok(News::Attached(process)) => return Ok(Some(process)),
            Ok(News::Ended(outcome)) => {
                self.riding -= 1;
                self.tally.add(&outcome?);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err("no sender is left".to_owned()),
        }
        Ok(None)
    }

    fn pass(&mut self, random: &mut Pcg64, stays: u32) -> Result<(), String> {
        let begun = Instant::now();
        let time = self.length.time;
        let mut next = [Duration::ZERO, Duration::ZERO, MINUTE, Duration::ZERO];
        while begun.elapsed() < time {
            let now = begun.elapsed();
            let [ride, sample, minute, gust] = next.map(|it| it <= now);
            if ride {
                let rides = draw(random, self.begun, &self.weather.name_of_namespace());
                let rate = f64::from(self.length.pillions_hourly) / rides.len() as f64;
                next[0] += hourly(rate, random);
                rides.into_iter().for_each(|ride| self.ride(ride));
            }
            if sample {
                next[1] += SAMPLE;
                self.sample(stays)?;
            }
            if minute {
                next[2] += MINUTE;
                println!("{}", self.tally.line(&self.books, now));
                self.members.iter_mut().try_for_each(Member::check)?;
                self.check_memory(stays)?;
                self.kernel.check()?;
                next = next.map(|it| it.max(begun.elapsed()));
            }
            if gust {
                next[3] += hourly(self.length.gusts_hourly.into(), random);
                self.weather.gust(&self.field.ground, random)?;
            }
            let until = next.iter().min().copied().unwrap_or_default();
            self.hear(until.saturating_sub(begun.elapsed()))?;
        }
        self.sample(stays)?;
        self.check_memory(stays)
    }

    /// Returns an error if memory has grown and does not shrink while nothing new starts.
    fn check_memory(&mut self, stays: u32) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            match self.samples.check(self.length.samples()) {
                Err(grown) if begun.elapsed() < CALM => println!("waiting for memory to shrink: {grown}"),
                checked => return checked,
            }
            let sampled = Instant::now();
            while sampled.elapsed() < SAMPLE {
                self.hear(SAMPLE.saturating_sub(sampled.elapsed()))?;
            }
            self.sample(stays)?;
        }
    }

    fn sample(&mut self, stays: u32) -> Result<(), String> {
        let sample = Sample::take(stays, &self.field.ground.accounting);
        let sample = sample.map_err(|error| format!("long-lived pillion: {error}"))?;
        self.samples.add(sample);
        Ok(())
    }

    /// Stops the pillions, the clients and the server, in this order. Then checks that nothing is
    /// left.
    fn end(&mut self, before: &Remains) -> Result<(), String> {
        let begun = Instant::now();
        while self.riding > 0 {
            self.hear(Duration::from_secs(1))?;
            if begun.elapsed() > 3 * PATIENCE {
                return Err(format!("{} pillions do not exit", self.riding));
            }
        }
        for member in self.members.drain(..).rev() {
            member.end()?;
        }
        while let Ok(News::Said(said)) = self.news.try_recv() {
            self.books.take(said)?;
        }
        self.books.close()?;
        self.weather.end(&self.field.ground)?;
        let left = Remains::now(&self.field.ground).beyond(before);
        if !left.is_empty() {
            return Err(format!("left behind: {left:?}"));
        }
        self.kernel.check()?;
        let accounting = &self.field.ground.accounting;
        accounting.reclaim();
        let left = accounting.kernel_bytes().unwrap_or(0);
        println!("{left} bytes of kernel memory left");
        match left {
            0..LEFT => Ok(()),
            _ => Err(format!("left behind: {left} bytes of kernel memory")),
        }
    }
}

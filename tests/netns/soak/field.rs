
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};

use super::ground::Ground;
use super::ride::Ride;
use super::rider::{Outcome, Rider};
use super::said::Said;

/// Event reported to the main thread of the soak.
#[derive(Debug)]
pub enum News {
    /// An endpoint reports an event.
    Said(Said),
    /// A pillion is attached: its PID.
    Attached(u32),
    /// A pillion has exited and left nothing behind, or has violated an invariant.
    Ended(Result<Outcome, String>),
}

#[derive(Clone)]
pub struct Field {
    pub ground: Arc<Ground>,
    news: Sender<News>,
    over: Arc<AtomicBool>,
}

impl Field {
    pub fn new(ground: Ground, news: Sender<News>) -> Self {
        Self {
            ground: Arc::new(ground),
            news,
            over: Arc::default(),
        }
    }

    pub fn tell(&self, news: News) {
        // The receiver is gone after a failure.
        let _ = self.news.send(news);
    }

    /// Makes all pillions stop, however much of their time is left.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Forwards the events of an endpoint until it exits, and all its lines to `also`.
    pub fn listen(&self, from: impl Read + Send + 'static, also: Sender<String>) -> JoinHandle<()> {
        let field = self.clone();
        thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                if let Ok(said) = line.parse() {
                    field.tell(News::Said(said));
                }
                let _ = also.send(line);
            }
        })
    }

    pub fn ride(&self, ride: Ride, number: u64) -> JoinHandle<()> {
        let field = self.clone();
        thread::spawn(move || {
            let ended = Rider::go(&field, &ride, number);
            field.tell(News::Ended(ended));
        })
    }
}

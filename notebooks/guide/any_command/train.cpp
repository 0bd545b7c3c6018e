// Trains a softmax classifier on a table of numbers whose last column is the class: a program as it was, and the marked
// lines, which print a line of JSON a record. It needs no library.
//   c++ -O2 -std=c++17 -o train train.cpp && ./train digits.csv 0.02 40 0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

struct Example {
    std::vector<double> x;
    int label;
};

std::vector<Example> read(const char *path) {
    std::vector<Example> examples;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        Example example;
        std::stringstream cells(line);
        for (std::string cell; std::getline(cells, cell, ',');) example.x.push_back(std::atof(cell.c_str()));
        if (example.x.empty()) continue;
        example.label = std::lround(example.x.back());
        for (double &value : example.x) value /= 16;  // pixels are 0 to 16
        example.x.back() = 1;                         // the offset, in the place of the class
        examples.push_back(example);
    }
    return examples;
}

std::vector<double> probabilities(const std::vector<std::vector<double>> &weights, const std::vector<double> &x) {
    std::vector<double> p;
    for (const auto &row : weights) p.push_back(std::inner_product(row.begin(), row.end(), x.begin(), 0.0));
    const double most = *std::max_element(p.begin(), p.end());
    double sum = 0;
    for (double &value : p) sum += value = std::exp(value - most);
    for (double &value : p) value /= sum;
    return p;
}

int main(int count, char **words) {
    if (count != 5) return std::fprintf(stderr, "usage: train CSV LR EPOCHS SEED\n"), 2;
    const double lr = std::atof(words[2]);
    const int epochs = std::atoi(words[3]);
    std::vector<Example> train, test;
    for (const Example &example : read(words[1])) ((train.size() + test.size()) % 4 ? train : test).push_back(example);
    if (train.empty()) return std::fprintf(stderr, "%s: no rows\n", words[1]), 1;
    std::vector<std::vector<double>> weights(10, std::vector<double>(train[0].x.size()));
    std::mt19937 draw(std::atoi(words[4]));
    double seconds = 0;
    for (int epoch = 1; epoch <= epochs; ++epoch) {
        double loss = 0;
        const auto begun = std::chrono::steady_clock::now();
        std::shuffle(train.begin(), train.end(), draw);
        for (const Example &example : train) {
            const auto p = probabilities(weights, example.x);
            loss -= std::log(p[example.label]) / train.size();
            for (std::size_t k = 0; k < weights.size(); ++k)
                for (std::size_t i = 0; i < example.x.size(); ++i)
                    weights[k][i] -= lr * (p[k] - (int(k) == example.label)) * example.x[i];
        }
        seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
        std::printf("{\"explorer\": \"log\", \"step\": %d, \"train_loss\": %.6g, \"seconds\": %.9f}\n",  // track
                    epoch, loss, seconds);                                                               // track
        std::fflush(stdout);                                                                             // track
    }
    int right = 0;
    for (const Example &example : test) {
        const auto p = probabilities(weights, example.x);
        right += std::max_element(p.begin(), p.end()) - p.begin() == example.label;
    }
    std::printf("{\"explorer\": \"done\", \"accuracy\": %.6f, \"examples\": %d}\n",  // track
                double(right) / test.size(), epochs * int(train.size()));          // track
}
